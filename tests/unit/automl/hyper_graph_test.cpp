
#include <gtest/gtest.h>

#include "automl/graph_rebuild.hpp"
#include "automl/morph.hpp"
#include "metrics/base/error.hpp"
#include "tests/unit/automl/sample_graphs.hpp"
#include "workloads/graph/model_graph_json.hpp"

namespace heteroperf {
namespace {

std::int64_t kernel_of(const ModelGraph& graph, const std::string& name) {
  return std::get<Conv2d>(graph.node(graph.find(name)).attributes).kernel[0];
}

double dropout_of(const ModelGraph& graph, const std::string& name) {
  return std::get<Dropout>(graph.node(graph.find(name)).attributes).p;
}

ModelGraph deepened() {
  ModelGraph graph = small_resnet();
  graph = deepen(graph, graph.find("relu"), DeeperForm::plain).graph;
  return deepen(graph, graph.find("layer2.0.relu"), DeeperForm::residual).graph;
}

TEST(HyperGraph, PutsDropoutInFrontOfTheClassifierOnce) {
  const ModelGraph graph = graph_with(graph_with(small_resnet(), 0.2, 3), 0.1, 3);
  EXPECT_EQ(dropout_of(graph, "dropout"), 0.1);
  EXPECT_EQ(graph.node(graph.find("fc")).inputs[0], graph.find("dropout"));
  EXPECT_EQ(graph.nodes().size(), small_resnet().nodes().size() + 1);
}

TEST(HyperGraph, UsesTheDropoutThatIsThere) {
  const ModelGraph graph = graph_with(plain_with_dense(), 0.25, 3);
  EXPECT_EQ(dropout_of(graph, "drop"), 0.25);
  EXPECT_EQ(graph.nodes().size(), plain_with_dense().nodes().size());
}

TEST(HyperGraph, ChangesOnlyTheKernelsThatMorphsHaveAdded) {
  const ModelGraph graph = graph_with(deepened(), 0.0, 5);
  EXPECT_EQ(kernel_of(graph, "deeper1.conv"), 5);
  EXPECT_EQ(kernel_of(graph, "conv1"), 7);
  EXPECT_EQ(kernel_of(graph, "layer1.0.conv1"), 3);
  EXPECT_EQ(graph.node(graph.find("deeper1.conv")).output,
            deepened().node(deepened().find("deeper1.conv")).output);
}

TEST(HyperGraph, NoKernelIsWiderThanItsMapCanMeet) {
  const ModelGraph graph = graph_with(deepened(), 0.0, 9);
  const NodeId small = graph.find("deeper2.conv1");
  ASSERT_EQ(graph.node(small).output[1], 4);
  EXPECT_EQ(kernel_of(graph, "deeper2.conv1"), 7);
  EXPECT_EQ(kernel_of(graph, "deeper1.conv"), 9);
}

TEST(HyperGraph, TheArchitectureIsWhatRemains) {
  for (const ModelGraph& sample : sample_graphs()) {
    const ModelGraph architecture = architecture_of(sample);
    for (std::int64_t kernel : {1, 3, 5, 7}) {
      const ModelGraph applied = graph_with(architecture, 0.125, kernel);
      EXPECT_NE(applied.hash(), architecture.hash());
      EXPECT_EQ(graph_to_text(architecture_of(applied)), graph_to_text(architecture));
      EXPECT_EQ(graph_to_text(graph_with(applied, 0.3, 5)),
                graph_to_text(graph_with(architecture, 0.3, 5)));
    }
  }
}

TEST(HyperGraph, RefusesImpossibleSettings) {
  EXPECT_THROW(graph_with(small_resnet(), 1.0, 3), Error);
  EXPECT_THROW(graph_with(small_resnet(), 0.1, 4), Error);
}

}  // namespace
}  // namespace heteroperf
