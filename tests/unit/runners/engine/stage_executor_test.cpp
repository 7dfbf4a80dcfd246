#include "runners/engine/pipeline/stage_executor.hpp"

#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "runners/device/host_pool.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator.hpp"
#include "runners/engine/pipeline/gradient_slots.hpp"
#include "tests/unit/runners/engine/reference_model.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

constexpr double tolerance = 1e-10;

struct TestedModel {
  const char* name;
  ModelGraph (*build)();
  std::int64_t batch;
};

ModelGraph checked_small_resnet18() {
  ModelOptions options;
  options.height = options.width = 32;
  options.classes = 10;
  return build_model("resnet18", options);
}
ModelGraph checked_nano() { return build_model("nano"); }
ModelGraph checked_gpt() { return test::tiny_gpt(0.1); }
ModelGraph checked_cnn() { return test::tiny_cnn(0.1); }

const TestedModel tested_models[] = {
    {"resnet18", checked_small_resnet18, 3}, {"nano", checked_nano, 2}, {"gpt", checked_gpt, 3},
    {"llama", test::tiny_llama, 3},          {"cnn", checked_cnn, 4},   {"vit", test::tiny_vit, 3}};

/// Calls body(node, index) for every parameter of a graph.
template <class Body>
void for_parameters(const ModelGraph& graph, const Body& body) {
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const NodeId node(static_cast<std::int32_t>(n));
    for (std::size_t i = 0; i < graph.node(node).parameters.size(); ++i) body(node, i);
  }
}

/// An executor in float64 and the same model on LibTorch's autograd, with equal parameters.
struct Pair {
  Pair(const ModelGraph& g, Fusion fusion)
      : graph(g),
        reference(g, at::kDouble, 7),
        store(g, Precision::fp64, 1),
        executor(whole_model(graph, at::kDouble, fusion), store) {
    for_parameters(graph, [&](NodeId node, std::size_t i) {
      at::Tensor(store.parameter(node, i)).copy_(reference.parameter(node, i).detach());
    });
  }

  ModelGraph graph;
  ReferenceModel reference;
  ParameterStore store;
  StageExecutor executor;
};

/// How the backward pass of a micro-batch is asked for.
enum class Passes { both, apart, recomputed };

double train_once(StageExecutor& executor, const ModelGraph& graph, const at::Tensor& sample,
                  const at::Tensor& targets, const PassContext& context = {},
                  Passes passes = Passes::both) {
  if (context.accumulation == Accumulation::overwrite) executor.overwrite_gradients();
  executor.put(0, graph.input(), sample);
  executor.put_targets(0, targets);
  executor.forward(0, context);
  const double loss = executor.loss(0);
  if (passes == Passes::recomputed) executor.recompute(0);
  if (passes == Passes::apart) {
    executor.input_gradient(0);
    executor.weight_gradient(0);
  } else {
    executor.backward(0);
  }
  executor.release(0);
  return loss;
}

BatchScore evaluate(StageExecutor& executor, const ModelGraph& graph, const at::Tensor& sample,
                    const at::Tensor& targets) {
  executor.put(0, graph.input(), sample);
  executor.put_targets(0, targets);
  const BatchScore score = executor.evaluate(0);
  executor.release(0);
  return score;
}

/// One thread: small models on two spend their time waiting for each other on a busy machine.
class AgainstAutograd : public ::testing::TestWithParam<std::tuple<TestedModel, Fusion>> {
 protected:
  AgainstAutograd() { use_threads(1); }
};

TEST_P(AgainstAutograd, LossAndEveryGradientAgree) {
  const auto& [model, fusion] = GetParam();
  Pair pair(model.build(), fusion);
  PassContext context;
  context.seed = 3;
  const at::Tensor sample = random_sample(pair.graph, model.batch, at::kDouble, 5);
  const at::Tensor targets = random_targets(pair.graph, model.batch, 6);

  const at::Tensor expected = pair.reference.forward(sample, targets, context);
  expected.backward();
  const double loss = train_once(pair.executor, pair.graph, sample, targets, context);

  EXPECT_NEAR(loss, expected.item().toDouble(), tolerance * loss);
  for_parameters(pair.graph, [&](NodeId node, std::size_t i) {
    EXPECT_LE(relative_error(pair.store.gradient(node, i), pair.reference.gradient(node, i)),
              tolerance)
        << pair.graph.node(node).name << " parameter " << i;
  });
}

TEST_P(AgainstAutograd, MicroBatchesAddTheirGradients) {
  const auto& [model, fusion] = GetParam();
  Pair pair(model.build(), fusion);
  PassContext context;
  context.seed = 3;
  context.loss_scale = 0.5;
  for (const std::uint64_t number : {0, 1}) {
    const at::Tensor sample = random_sample(pair.graph, model.batch, at::kDouble, 5 + number);
    const at::Tensor targets = random_targets(pair.graph, model.batch, 16 + number);
    context.first_sample = number * static_cast<std::uint64_t>(model.batch);
    context.accumulation = number == 0 ? Accumulation::overwrite : Accumulation::add;
    pair.reference.forward(sample, targets, context).mul(0.5).backward();
    train_once(pair.executor, pair.graph, sample, targets, context);
  }
  for_parameters(pair.graph, [&](NodeId node, std::size_t i) {
    EXPECT_LE(relative_error(pair.store.gradient(node, i), pair.reference.gradient(node, i)),
              tolerance)
        << pair.graph.node(node).name << " parameter " << i;
  });
}

TEST_P(AgainstAutograd, InputAndWeightGradientsMayComeApart) {
  const auto& [model, fusion] = GetParam();
  Pair pair(model.build(), fusion);
  PassContext context;
  context.seed = 3;
  const at::Tensor sample = random_sample(pair.graph, model.batch, at::kDouble, 5);
  const at::Tensor targets = random_targets(pair.graph, model.batch, 6);
  pair.reference.forward(sample, targets, context).backward();
  train_once(pair.executor, pair.graph, sample, targets, context, Passes::apart);
  for_parameters(pair.graph, [&](NodeId node, std::size_t i) {
    EXPECT_LE(relative_error(pair.store.gradient(node, i), pair.reference.gradient(node, i)),
              tolerance)
        << pair.graph.node(node).name << " parameter " << i;
  });
}

TEST_P(AgainstAutograd, ASecondForwardGivesTheSameBits) {
  const auto& [model, fusion] = GetParam();
  const ModelGraph graph = model.build();
  PassContext context;
  context.seed = 3;
  const at::Tensor sample = random_sample(graph, model.batch, at::kDouble, 5);
  const at::Tensor targets = random_targets(graph, model.batch, 6);
  ParameterStore kept(graph, Precision::fp64, 1), again(graph, Precision::fp64, 1);
  StageExecutor plain(whole_model(graph, at::kDouble, fusion), kept);
  StageModel recomputing = whole_model(graph, at::kDouble, fusion);
  recomputing.recomputation = Recomputation::full;
  StageExecutor second(std::move(recomputing), again);
  EXPECT_EQ(train_once(plain, graph, sample, targets, context),
            train_once(second, graph, sample, targets, context, Passes::recomputed));
  for_parameters(graph, [&](NodeId node, std::size_t i) {
    EXPECT_TRUE(kept.gradient(node, i).equal(again.gradient(node, i))) << graph.node(node).name;
  });
  const Tensors one = plain.buffers(), other = second.buffers();
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(other[i]));
}

TEST_P(AgainstAutograd, EvaluationUsesRunningStatisticsAndLeavesThemAlone) {
  const auto& [model, fusion] = GetParam();
  Pair pair(model.build(), fusion);
  PassContext context;
  const at::Tensor sample = random_sample(pair.graph, model.batch, at::kDouble, 5);
  const at::Tensor targets = random_targets(pair.graph, model.batch, 6);
  pair.reference.forward(sample, targets, context);
  train_once(pair.executor, pair.graph, sample, targets, context);

  context.mode = Mode::evaluate;
  const double expected = pair.reference.forward(sample, targets, context).item().toDouble();
  const NodeId logits_node = pair.graph.node(pair.graph.loss()).inputs.front();
  const at::Tensor logits = pair.reference.output(logits_node).detach();
  const auto right = logits.argmax(-1).eq(targets).sum().item().toLong();
  for (int time = 0; time < 2; ++time) {
    const BatchScore score = evaluate(pair.executor, pair.graph, sample, targets);
    EXPECT_NEAR(score.loss, expected, tolerance * expected);
    EXPECT_EQ(score.correct, static_cast<std::uint64_t>(right));
    EXPECT_EQ(score.targets, static_cast<std::uint64_t>(targets.numel()));
  }
}

TEST_P(AgainstAutograd, NothingIsHeldAfterAPass) {
  const auto& [model, fusion] = GetParam();
  const RankMemory memory;
  const MemoryScope charged(memory);
  const ModelGraph graph = model.build();
  ParameterStore store(graph, Precision::fp32, 1);
  StageExecutor executor(whole_model(graph, at::kFloat, fusion), store);
  const at::Tensor sample = random_sample(graph, model.batch, at::kFloat, 5);
  const at::Tensor targets = random_targets(graph, model.batch, 6);
  train_once(executor, graph, sample, targets);
  const std::uint64_t after_one = memory.use().current_bytes;
  evaluate(executor, graph, sample, targets);
  train_once(executor, graph, sample, targets);
  train_once(executor, graph, sample, targets);
  EXPECT_EQ(memory.use().current_bytes, after_one);
  EXPECT_GT(memory.use().peak_bytes, after_one);
}

INSTANTIATE_TEST_SUITE_P(Models, AgainstAutograd,
                         ::testing::Combine(::testing::ValuesIn(tested_models),
                                            ::testing::Values(Fusion::off, Fusion::on)),
                         [](const auto& tested) {
                           const bool fused = std::get<1>(tested.param) == Fusion::on;
                           return std::string(std::get<0>(tested.param).name) +
                                  (fused ? "Fused" : "Unfused");
                         });

TEST(StageExecutor, FreesActivationsWhenTheirLastUsePasses) {
  // A chain of additions: at no time are more than a few of its outputs needed.
  ModelGraph graph;
  NodeId x = graph.add("image", Input{InputKind::images, 4, 32, 32, 0}, {});
  x = graph.add("conv", Conv2d{4, {1, 1}, {1, 1}, {0, 0}, 1, false}, {x});
  for (int i = 0; i < 40; ++i) x = graph.add("add" + std::to_string(i), Add{}, {x, x});
  x = graph.add("pool", GlobalAvgPool{}, {x});
  graph.add("loss", CrossEntropy{}, {x});

  const RankMemory memory;
  const MemoryScope charged(memory);
  ParameterStore store(graph, Precision::fp32, 1);
  StageExecutor executor(whole_model(graph, at::kFloat, Fusion::off), store);
  const at::Tensor sample = random_sample(graph, 8, at::kFloat, 5);
  const at::Tensor targets = random_targets(graph, 8, 6);
  const std::uint64_t before = memory.use().current_bytes;
  train_once(executor, graph, sample, targets);
  const std::uint64_t one_output = 8 * 4 * 32 * 32 * sizeof(float);
  EXPECT_LT(memory.use().peak_bytes - before, 6 * one_output);
}

/// Counts the passes of each group.
struct PassCounts final : GroupTimer {
  void begin() override { ++begun; }
  void end(std::size_t group, GroupPass pass) override { ++ended[{group, pass}]; }

  int begun = 0;
  std::map<std::pair<std::size_t, GroupPass>, int> ended;
};

TEST(StageExecutor, TimesEveryPassOfEveryGroup) {
  const ModelGraph graph = test::tiny_gpt();
  ParameterStore store(graph, Precision::fp32, 1);
  StageExecutor executor(whole_model(graph, at::kFloat, Fusion::off), store);
  const at::Tensor sample = random_sample(graph, 2, at::kFloat, 5);
  const at::Tensor targets = random_targets(graph, 2, 6);
  PassCounts counts;
  train_once(executor, graph, sample, targets);
  executor.time_groups(&counts);
  train_once(executor, graph, sample, targets);
  train_once(executor, graph, sample, targets, {}, Passes::apart);
  executor.time_groups(nullptr);
  train_once(executor, graph, sample, targets);
  int ended = 0;
  for (std::size_t g = 0; g < executor.model().groups.size(); ++g) {
    const bool weights = !executor.model().groups[g].parameters.empty();
    EXPECT_EQ((counts.ended[{g, GroupPass::forward}]), 2);
    EXPECT_EQ((counts.ended[{g, GroupPass::backward}]), 1);
    EXPECT_EQ((counts.ended[{g, GroupPass::input_gradient}]), 1);
    EXPECT_EQ((counts.ended[{g, GroupPass::weight_gradient}]), weights ? 1 : 0);
  }
  for (const auto& [pass, count] : counts.ended) ended += count;
  EXPECT_EQ(counts.begun, ended);
}

TEST(GradientSlots, AddsInPlaceOnlyWhatNobodyElseHolds) {
  GradientSlots slots({true, true, false});
  OperatorGroup group;
  group.inputs = {NodeId(0), NodeId(1), NodeId(2)};
  SlotSink sink(slots, group);
  EXPECT_FALSE(sink.wanted(2));
  EXPECT_FALSE(sink.wanted(3));
  EXPECT_FALSE(sink.reusable(0).defined());

  const at::Tensor shared = at::ones({4});
  sink.put(0, shared);
  sink.put(1, shared);
  EXPECT_FALSE(sink.reusable(0).defined());
  sink.put(0, at::ones({4}));
  EXPECT_EQ(slots.at(NodeId(0)).sum().item().toDouble(), 8.0);
  EXPECT_EQ(shared.sum().item().toDouble(), 4.0);

  at::Tensor own = sink.reusable(0);
  ASSERT_TRUE(own.defined());
  own.add_(1);
  sink.replace(0, std::move(own));
  EXPECT_EQ(slots.take(NodeId(0)).sum().item().toDouble(), 12.0);
  EXPECT_FALSE(slots.at(NodeId(0)).defined());
}

TEST(GradientSlots, AViewOfSharedMemoryIsNotHeldAlone) {
  const c10::InferenceMode no_tape;  // as ranks run: else a view holds its base
  at::Tensor whole = at::ones({8});
  EXPECT_TRUE(held_alone(whole));
  at::Tensor part = whole.narrow(0, 0, 4);
  EXPECT_FALSE(held_alone(part));
  EXPECT_FALSE(held_alone(whole));
  whole.reset();
  EXPECT_TRUE(held_alone(part));
}

}  // namespace
}  // namespace heteroperf
