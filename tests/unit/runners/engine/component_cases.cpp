#include "tests/unit/runners/engine/component_cases.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>

#include "runners/comm/communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/models/transformers.hpp"

namespace heteroperf::test {
namespace {

constexpr std::int64_t evaluated = 13;

/// A rank's components are all that it does in its passes; adds them to those of other ranks. Of a
/// model of one component nothing is told apart.
void expect_components_add_up(const ModelGraph& graph, const StepOperations& operations,
                              const StepReport& report, ComponentsOutcome& outcome) {
  if (components_of(graph).size() == 1) {
    EXPECT_TRUE(operations.components.empty());
    return;
  }
  outcome.component_ops.resize(2);
  outcome.border_bytes.resize(2);
  ASSERT_EQ(operations.components.size(), 2u);
  ASSERT_EQ(report.components.size(), 2u);
  StepOperations sum;
  double compute_s = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const StepOperations& part = operations.components[i];
    sum.add(part);
    const double part_s = report.components[i].compute_s.value();
    // Norms take time and have no operations.
    EXPECT_TRUE(part_s > 0 || part.strict + part.recompute == Ops()) << "component " << i;
    compute_s += part_s;
    outcome.component_ops[i] += part.strict;
    outcome.border_bytes[i] += report.components[i].border_bytes;
  }
  EXPECT_EQ(sum.strict, operations.strict);
  EXPECT_EQ(sum.recompute, operations.recompute);
  EXPECT_LE(compute_s, report.split.compute_s * (1 + 1e-9));
}

}  // namespace

ModelGraph tiny_towers(ContrastOver over) {
  ModelGraph towers = two_towers({.image = {InputKind::images, 3, 16, 16, 0},
                                  .text_input = {InputKind::tokens, 0, 0, 0, 6},
                                  .patch = 4,
                                  .vision = {2, 32, 4},
                                  .text = {2, 16, 4},
                                  .vocabulary = 8,
                                  .embedding = 12});
  if (over == ContrastOver::step) return towers;
  ModelGraph result;
  for (const Node& node : towers.nodes()) {
    const bool is_loss = node.name == "loss";
    result.add(node.name, is_loss ? Contrastive{over, 0.07} : node.attributes, node.inputs,
               node.branch);
  }
  return result;
}

ModelGraph tiny_captioner() {
  GptShape text;
  text.layers = 2;
  text.width = 16;
  text.heads = 4;
  text.vocabulary = 12;
  text.length = 24;
  return vision_language(
      {.image = {InputKind::images, 3, 12, 12, 0}, .patch = 4, .vision = {2, 32, 4}, .text = text});
}

ModelGraph tiny_album(double dropout) {
  GptShape text;
  text.layers = 2;
  text.width = 16;
  text.heads = 4;
  text.vocabulary = 12;
  text.length = 32;
  text.dropout = dropout;
  return vision_language({.image = {InputKind::images, 3, 12, 12, 0, 3},
                          .patch = 4,
                          .vision = {2, 32, 4},
                          .text = text});
}

ModelGraph tiny_streams() {
  return co_attention({.image = {InputKind::images, 3, 12, 12, 0},
                       .text_input = {InputKind::tokens, 0, 0, 0, 6},
                       .patch = 4,
                       .vision = {2, 32, 4},
                       .text = {2, 16, 4},
                       .every = 1,
                       .vocabulary = 8,
                       .embedding = 10});
}

ComponentsOutcome train_components(const ModelGraph& graph, Plan plan) {
  TrainingSpec spec = small_training(graph);
  spec.recipe.clip_norm = 0.5;
  spec.use_plan(std::move(plan));
  EXPECT_EQ(spec.plan().samples_per_step(), step_samples);
  ComponentsOutcome outcome;
  std::vector<StepOperations> operations(spec.plan().ranks());
  std::vector<StepReport> last(operations.size());
  run_on_threads(spec.plan().ranks(), {}, [&](World& world) {
    const std::unique_ptr<TrainingSession> session = start_training(spec, *world.communicator);
    ComponentsOutcome mine;
    for (int i = 0; i < 3; ++i) {
      const StepReport report = session->step();
      mine.losses.push_back(report.loss);
      mine.norms.push_back(report.gradient_norm);
      last[world.communicator->rank().index()] = report;
    }
    const EvaluationReport evaluation = session->evaluate(evaluated);
    mine.evaluation = evaluation.loss;
    mine.accuracy = evaluation.accuracy;
    const RankId rank = world.communicator->rank();
    operations[rank.index()] = session->operations();
    if (rank == RankId(0)) outcome = mine;
  });
  for (std::size_t rank = 0; rank < operations.size(); ++rank) {
    outcome.ops += operations[rank].strict;
    expect_components_add_up(graph, operations[rank], last[rank], outcome);
  }
  return outcome;
}

ComponentsOutcome train_components(const ModelGraph& graph, const EvenPlanRequest& request) {
  return train_components(graph, even_plan(graph, request));
}

std::string name_of_plan(const EvenPlanRequest& request) {
  return fmt::format("{} p{} t{} c{} d{} {}x{} {}", request.schedule, request.pipeline,
                     request.tensor, request.context, request.data, request.micro_batches,
                     request.micro_batch, to_string(request.recomputation));
}

void expect_same(const ComponentsOutcome& a, const ComponentsOutcome& b, const std::string& name) {
  const auto close = [&](double x, double y) {
    EXPECT_LE(std::abs(x - y), 1e-11 * std::abs(y)) << name;
  };
  for (std::size_t i = 0; i < b.losses.size(); ++i) {
    close(a.losses[i], b.losses[i]);
    close(a.norms[i], b.norms[i]);
  }
  close(a.evaluation, b.evaluation);
  EXPECT_EQ(a.accuracy, b.accuracy) << name;
}

}  // namespace heteroperf::test
