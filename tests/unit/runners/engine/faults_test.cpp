// A rank that dies anywhere in a step: before a forward pass, while tensors travel, in a sum, in
// the agreement before the update.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <string>

#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/plan/even_plan.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"

namespace heteroperf {
namespace {

constexpr int never = std::numeric_limits<int>::max();
constexpr const char* last_words = "lost on purpose";

/// Calls left until the rank dies, over all of its groups and threads.
using Life = std::shared_ptr<std::atomic<int>>;

/// Throws at the call that ends its rank's life.
class Mortal final : public Communicator {
 public:
  Mortal(std::unique_ptr<Communicator> inner, Life life)
      : inner_(std::move(inner)), life_(std::move(life)) {}

  RankId rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string transport() const override { return inner_->transport(); }
  std::string one_thread_reason() const override { return inner_->one_thread_reason(); }
  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override {
    alive().all_reduce(input, result, reduction);
  }
  void reduce(ConstBuffer input, MutableBuffer result, RankId root, Reduction reduction) override {
    alive().reduce(input, result, root, reduction);
  }
  void broadcast(MutableBuffer values, RankId root) override { alive().broadcast(values, root); }
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override {
    alive().all_gather(input, all, counts);
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                      Reduction reduction) override {
    alive().reduce_scatter(all, result, counts, reduction);
  }
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override {
    alive().all_to_all(input, to_each, result, from_each);
  }
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    return alive().start_send(values, to, tag);
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override {
    return alive().start_receive(values, from, tag);
  }
  void barrier() override { alive().barrier(); }
  std::unique_ptr<Communicator> split(int colour, int key) override {
    return std::make_unique<Mortal>(alive().split(colour, key), life_);
  }

 private:
  Communicator& alive() {
    if (--*life_ < 0) throw SystemError(last_words);
    return *inner_;
  }

  std::unique_ptr<Communicator> inner_;
  Life life_;
};

/// Samples end at `last`.
class EndingSamples final : public DataSource {
 public:
  EndingSamples(std::shared_ptr<const DataSource> inner, std::uint64_t last)
      : inner_(std::move(inner)), last_(last) {}
  const SampleSpec& spec() const override { return inner_->spec(); }
  std::uint64_t size(Split split) const override { return inner_->size(split); }
  void read(Split split, std::uint64_t index, SampleView out) const override {
    if (read_++ >= last_) throw SystemError(last_words);
    inner_->read(split, index, out);
  }
  std::string description() const override { return inner_->description(); }
  std::string fingerprint() const override { return inner_->fingerprint(); }

 private:
  std::shared_ptr<const DataSource> inner_;
  std::uint64_t last_;
  mutable std::atomic<std::uint64_t> read_{0};
};

TrainingSpec two_stages_of_two(int tensor, int data) {
  TrainingSpec spec = test::small_training(test::tiny_gpt());
  spec.use_plan(even_plan(
      spec.graph,
      {.pipeline = 2, .tensor = tensor, .data = data, .micro_batch = 1, .micro_batches = 2}));
  return spec;
}

constexpr int faulty_steps = 2;
constexpr RankId culprit{1};

/// How many calls the culprit makes over a whole training.
int calls_of(const TrainingSpec& spec) {
  int calls = 0;
  run_on_threads(spec.plan().ranks(), {}, [&](World& world) {
    const bool dies = world.communicator->rank() == culprit;
    const auto life = std::make_shared<std::atomic<int>>(never);
    Mortal group(std::move(world.communicator), life);
    const auto session = start_training(spec, group);
    for (int i = 0; i < faulty_steps; ++i) session->step();
    if (dies) calls = never - *life;
  });
  return calls;
}

/// Every other rank is told who died.
void expect_told(const TrainingSpec& spec, int calls, std::uint64_t samples,
                 const std::string& name) {
  std::atomic<int> told{0};
  const auto body = [&](World& world) {
    const bool dies = world.communicator->rank() == culprit;
    TrainingSpec own = spec;
    if (dies) own.data = std::make_shared<EndingSamples>(spec.data, samples);
    Mortal group(std::move(world.communicator),
                 std::make_shared<std::atomic<int>>(dies ? calls : never));
    try {
      const auto session = start_training(own, group);
      for (int i = 0; i < faulty_steps; ++i) session->step();
    } catch (const PeerError& error) {
      EXPECT_EQ(error.failure().rank, culprit) << name;
      ++told;
      throw;
    }
  };
  try {
    run_on_threads(spec.plan().ranks(), {}, body);
    ADD_FAILURE() << name << ": nobody threw";
  } catch (const SystemError& error) {
    EXPECT_STREQ(error.what(), last_words) << name;
  }
  EXPECT_EQ(told, spec.plan().ranks() - 1) << name;
}

constexpr std::uint64_t endless = std::numeric_limits<std::uint64_t>::max();

class DyingRank : public ::testing::TestWithParam<bool> {};

TEST_P(DyingRank, IsNamedWhereverItDies) {
  const TrainingSpec spec = GetParam() ? two_stages_of_two(2, 1) : two_stages_of_two(1, 2);
  const int calls = calls_of(spec);
  ASSERT_GT(calls, 20);
  for (int left = 0; left < calls; ++left) {
    expect_told(spec, left, endless, "at call " + std::to_string(left));
  }
}
INSTANTIATE_TEST_SUITE_P(Plans, DyingRank, ::testing::Bool(), [](const auto& tested) {
  return tested.param ? "TensorParallel" : "DataParallel";
});

TEST(DyingData, IsNamedWhenItsForwardPassFails) {
  const TrainingSpec spec = two_stages_of_two(1, 2);
  for (std::uint64_t samples = 0; samples < 4; ++samples) {
    expect_told(spec, never, samples, "at sample " + std::to_string(samples));
  }
}

}  // namespace
}  // namespace heteroperf
