#include "suite/watch/peak_measurement.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/results/sample_run.hpp"
#include "tests/unit/suite/no_engine.hpp"

namespace heteroperf {
namespace {

/// A product of its own for each rank that asks. In their first call both ranks are there at once.
class TwoProducts : public test::NoEngine {
 public:
  FastestProduct find_fastest_product(Precision, int, double) override {
    const std::size_t asked = asked_++;
    FastestProduct product;
    product.name = asked % 2 == 0 ? "even 1x1x1" : "odd 1x1x1";
    product.tried = {"even", "odd"};
    product.operations = 6;
    product.mm_ops_per_second = 5;
    product.multiply = [this, asked, is_first = true]() mutable {
      if (is_first) both_[asked / 2].arrive_and_wait();
      is_first = false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    };
    return product;
  }
  std::size_t asked() const { return asked_; }

 private:
  std::atomic<std::size_t> asked_ = 0;
  std::array<std::latch, 2> both_{std::latch(2), std::latch(2)};
};

/// A processor whose instructions of bf16 are slower than those of float32.
class SlowBf16 : public test::NoEngine {
 public:
  FastestProduct find_fastest_product(Precision precision, int threads, double) override {
    FastestProduct product;
    product.mm_ops_per_second = precision == Precision::bf16 ? 8.0 * threads : 12.0 * threads;
    product.ops_per_second = 16.0 * threads;
    return product;
  }
};

TEST(Bf16Speedup, IsTheRateOfItsOperatorsOverTheFastestOfFloat32) {
  SlowBf16 engine;
  EXPECT_EQ(bf16_speedup(engine, 3), 0.5);
}

/// Three ranks of a host with two CPUs: two of them measure.
class PeakMeasurement : public ::testing::Test {
 protected:
  PeakMeasurement() {
    placement_.ranks = 3;
    for (int rank = 0; rank < 3; ++rank) placement_.bindings.push_back({"a", {0, 1}, ""});
    config_.measure.peak_s = 0.004;
  }

  /// The `peak` lines of both moments.
  std::vector<PeakEvent> measured(bool in_lockstep = false) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "journal.jsonl").string();
    {
      JournalWriter journal(path);
      journal.append(StartEvent{});
      run_on_threads(3, {}, [&](World& world) { work(world, journal, in_lockstep); });
    }
    std::vector<PeakEvent> peaks;
    const Journal journal = read_journal(path);
    for (const PeakEvent* peak : journal.all<PeakEvent>()) peaks.push_back(*peak);
    return peaks;
  }

  RunConfig config_;
  Placement placement_;
  TwoProducts engine_;

 private:
  void work(World& world, JournalWriter& journal, bool in_lockstep) {
    std::optional<ServiceScope> service;
    RankContext context{config_, placement_, world, engine_};
    context.in_lockstep = in_lockstep;
    if (context.is_first()) {
      context.first.journal = &journal;
      service.emplace(*world.control, answer_ranks(journal));
    }
    for (const PeakMoment moment : {PeakMoment::before_run, PeakMoment::after_run}) {
      const double mm_rate = measure_peak(context, Precision::fp32, moment);
      EXPECT_EQ(mm_rate, in_lockstep || config_.measure.peak_s <= 0 ? 0 : 10);
    }
    world.communicator->barrier();
  }
};

TEST_F(PeakMeasurement, IsWhatTheRanksWithCpusReachTogether) {
  const std::vector<PeakEvent> peaks = measured();
  ASSERT_EQ(peaks.size(), 2u);
  for (const PeakEvent& peak : peaks) {
    EXPECT_GT(peak.ops_per_second, 0);
    EXPECT_LT(peak.ops_per_second, 2 * 6 / 100e-6) << "no call is shorter than its sleep";
    EXPECT_EQ(peak.products, (std::vector<std::string>{"even 1x1x1", "odd 1x1x1"}));
    EXPECT_EQ(peak.tried, (std::vector<std::string>{"even", "odd"}));
    EXPECT_EQ(peak.mm_ops_per_second, 10);
    ASSERT_TRUE(peak.other_load);
    EXPECT_GT(*peak.other_load, 0) << "the ranks slept";
    EXPECT_FALSE(peak.memory_bytes_per_second);
  }
  EXPECT_TRUE(peaks[0].memory_reason.starts_with("a: 3 threads share ")) << peaks[0].memory_reason;
  EXPECT_EQ(peaks[1].memory_reason, "") << "the memory is measured once";
}

TEST_F(PeakMeasurement, IsNotMadeInLockstepOrWhereItIsNotWanted) {
  EXPECT_TRUE(measured(true).empty());
  config_.measure.peak_s = 0;
  EXPECT_TRUE(measured().empty());
  EXPECT_EQ(engine_.asked(), 0u);
}

}  // namespace
}  // namespace heteroperf
