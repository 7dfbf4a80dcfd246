#include "suite/training/product_ways.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <optional>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "tests/unit/results/sample_run.hpp"
#include "tests/unit/suite/no_engine.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

const ProductShape shared = ProductShape::of_matrices(8, 4, 2),
                   of_first = ProductShape::of_matrices(16, 4, 2),
                   of_second = ProductShape::of_matrices(32, 4, 2, false, true);

/// Two ranks with a product in common and one of their own. Ours takes half of MKL's time for the
/// common one; rank 1 has no oneDNN.
class UnlikeRanks : public test::NoEngine {
 public:
  std::set<ProductShape> products_of(const TrainingSpec&, RankId rank) override {
    return {shared, rank == RankId(0) ? of_first : of_second};
  }
  std::vector<ProductTimes> time_products(const std::vector<ProductShape>& shapes, int,
                                          double) override {
    const bool is_first_call = calls_++ % 2 == 0;
    std::vector<ProductTimes> times;
    for (const ProductShape& shape : shapes) {
      const double own_s = shape == shared ? 1e-3 : 3e-3;
      times.push_back({2e-3, is_first_call ? 1e-4 : 0, own_s});
    }
    timed_ += shapes.size();
    return times;
  }
  std::size_t timed() const { return timed_; }

 private:
  std::atomic<std::size_t> calls_ = 0, timed_ = 0;
};

class ProductWays : public ::testing::Test {
 protected:
  ProductWays() {
    setenv("XDG_CACHE_HOME", (folder_.path() / "cache").c_str(), 1);
    fs::create_directory(folder_.path() / "cache");
    placement_.ranks = 2;
    for (int rank = 0; rank < 2; ++rank) placement_.bindings.push_back({"a", {0, 1}, ""});
  }
  ~ProductWays() override { unsetenv("XDG_CACHE_HOME"); }

  /// The line of the journal; every rank has its choice.
  ProductsEvent settled() {
    const std::string path = (folder_.path() / "journal.jsonl").string();
    fs::remove(path);
    {
      JournalWriter journal(path);
      journal.append(StartEvent{});
      run_on_threads(2, {}, [&](World& world) { work(world, journal); });
    }
    const Journal journal = read_journal(path);
    EXPECT_EQ(journal.all<ProductsEvent>().size(), 1U);
    return *journal.last<ProductsEvent>();
  }
  /// The one file in the cache.
  fs::path kept() const {
    for (const auto& entry : fs::directory_iterator(folder_.path() / "cache/heteroperf")) {
      return entry.path();
    }
    return {};
  }

  TemporaryFolder folder_;
  RunConfig config_;
  Placement placement_;
  UnlikeRanks engine_;

 private:
  void work(World& world, JournalWriter& journal) {
    std::optional<ServiceScope> service;
    RankContext context{config_, placement_, world, engine_};
    if (context.is_first()) {
      context.first.journal = &journal;
      service.emplace(*world.control, answer_ranks(journal));
    }
    settle_products(context, TrainingSpec(), world.communicator->rank());
    ASSERT_NE(context.products, nullptr);
    if (config_.engine.products == automatic_products) {
      EXPECT_EQ(context.products->way_for(shared), ProductWay::own);
      EXPECT_EQ(context.products->way_for(of_second), ProductWay::mkl);
    }
    world.communicator->barrier();
  }
};

TEST_F(ProductWays, AreOneChoiceForTheProductsOfAllRanks) {
  const ProductsEvent event = settled();
  EXPECT_EQ(event.choice, "mkl:16x4x2nn,32x4x2nt/own:8x4x2nn");
  ASSERT_EQ(event.measured.size(), 3U);
  EXPECT_EQ(event.measured[0], (MeasuredProduct{"8x4x2nn", "own", {{"mkl", 2e-3}, {"own", 1e-3}}}))
      << "what one rank lacks nobody takes";
}

TEST_F(ProductWays, AreMeasuredOnceOnAMachine) {
  const ProductsEvent first = settled();
  EXPECT_EQ(engine_.timed(), 6U);
  EXPECT_EQ(settled().choice, first.choice);
  EXPECT_EQ(settled().measured, first.measured);
  EXPECT_EQ(engine_.timed(), 6U) << "kept";
  placement_.threads_per_rank = 3;
  settled();
  EXPECT_EQ(engine_.timed(), 12U) << "other threads";
}

TEST_F(ProductWays, AreMeasuredAnewWhereWhatIsKeptCannotBeRead) {
  settled();
  const std::string good = read_text_file(kept());
  std::size_t timed = engine_.timed();
  for (const std::string& bad :
       {std::string(), good.substr(0, good.size() - 1), "x" + good, good + "1x2x3nn 1 1 1\n",
        good + "1x2x3nn 1 1 1 0 1\n", good + "nonsense 1 1 1 0\n", good + "1x2x3nn 0 1 1 0\n",
        good.substr(good.find('\n') + 1)}) {
    write_file_atomically(kept(), bad);
    EXPECT_EQ(settled().choice, "mkl:16x4x2nn,32x4x2nt/own:8x4x2nn");
    timed += 6;
    EXPECT_EQ(engine_.timed(), timed) << bad;
    EXPECT_EQ(read_text_file(kept()), good);
  }
}

TEST_F(ProductWays, ThatCannotBeKeptAreStillTaken) {
  write_file_atomically(folder_.path() / "cache/heteroperf", "a file, no folder");
  EXPECT_EQ(settled().choice, "mkl:16x4x2nn,32x4x2nt/own:8x4x2nn");
  EXPECT_EQ(settled().choice, "mkl:16x4x2nn,32x4x2nt/own:8x4x2nn");
  EXPECT_EQ(engine_.timed(), 12U);
}

TEST_F(ProductWays, AreThoseThatTheConfigurationNames) {
  config_.engine.products = "own";
  const ProductsEvent event = settled();
  EXPECT_EQ(event.choice, "own");
  EXPECT_TRUE(event.measured.empty());
  EXPECT_EQ(engine_.timed(), 0U);
}

}  // namespace
}  // namespace heteroperf
