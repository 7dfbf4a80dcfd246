#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "tests/unit/runners/engine/operators/operator_check.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

struct WholeModel {
  const char* name;
  ModelOptions options;
  std::int64_t batch;
};

ModelOptions images(std::int64_t extent) {
  ModelOptions options;
  options.height = options.width = extent;
  options.classes = 10;
  return options;
}
ModelOptions tokens(std::int64_t length, std::int64_t vocabulary, double dropout) {
  ModelOptions options;
  options.length = length;
  options.classes = vocabulary;
  options.dropout = dropout;
  return options;
}

const WholeModel cases[] = {
    {"resnet18", images(32), 4}, {"nano", {}, 2}, {"nano", tokens(24, 50, 0.1), 3}};

class WholeModels : public testing::TestWithParam<std::tuple<WholeModel, Fusion>> {};

TEST_P(WholeModels, HaveTheGradientsOfAutograd) {
  const auto& [model, fusion] = GetParam();
  const ModelGraph graph = build_model(model.name, model.options);
  ReferenceModel reference(graph, at::kDouble, 4);
  const at::Tensor sample = random_sample(graph, model.batch, at::kDouble, 5);
  const at::Tensor targets = random_targets(graph, model.batch, 6);
  PassContext context;
  context.seed = 1;
  const ModelGradients ours =
      run_model(graph, reference, at::kDouble, fusion, sample, targets, context);
  const at::Tensor loss = reference.forward(sample, targets, context);
  loss.backward();
  EXPECT_LE(relative_error(ours.loss, loss), 1e-10);
  ASSERT_FALSE(ours.parameters.empty());
  for (const auto& [key, gradient] : ours.parameters) {
    const NodeId node(key.first);
    EXPECT_LE(relative_error(gradient, reference.gradient(node, key.second)), 1e-10)
        << graph.node(node).name << " " << graph.node(node).parameters[key.second].name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, WholeModels,
                         testing::Combine(testing::ValuesIn(cases),
                                          testing::Values(Fusion::off, Fusion::on)),
                         [](const auto& chosen) {
                           const WholeModel& model = std::get<0>(chosen.param);
                           const Fusion fusion = std::get<1>(chosen.param);
                           return fmt::format("{}_{}_{}", model.name, chosen.index,
                                              fusion == Fusion::on ? "fused" : "single");
                         });

}  // namespace
}  // namespace heteroperf
