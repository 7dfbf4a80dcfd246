
#include <gtest/gtest.h>

#include "automl/graph_rebuild.hpp"
#include "tests/unit/automl/sample_graphs.hpp"

namespace heteroperf {
namespace {

std::vector<std::string> producer_names(const ModelGraph& graph, const std::string& member) {
  std::vector<std::string> names;
  const ChannelClasses classes(graph);
  for (NodeId id : classes.producers(graph.find(member))) names.push_back(graph.node(id).name);
  return names;
}

TEST(ChannelClasses, ASumJoinsTheStemWithEveryBlockOfItsStage) {
  const ModelGraph graph = small_resnet();
  const std::vector<std::string> expected{"conv1", "layer1.0.conv2", "layer1.1.conv2"};
  EXPECT_EQ(producer_names(graph, "layer1.1.relu"), expected);
  EXPECT_EQ(producer_names(graph, "maxpool"), expected);
  EXPECT_EQ(producer_names(graph, "layer1.0.bn1"), (std::vector<std::string>{"layer1.0.conv1"}));
}

TEST(ChannelClasses, TheClassBeforeTheClassifierMayWidenTheClassifierAndTheSampleMayNot) {
  const ModelGraph graph = small_resnet();
  const ChannelClasses classes(graph);
  EXPECT_TRUE(classes.may_widen(graph.find("layer2.0.conv2")));
  EXPECT_FALSE(classes.may_widen(graph.find("fc")));
  EXPECT_FALSE(classes.may_widen(graph.find("input")));
  EXPECT_EQ(producer_names(graph, "avgpool"), producer_names(graph, "layer2.0.add"));
}

TEST(ChannelClasses, FlattenEndsAClassAndLetsItsSourceWiden) {
  const ModelGraph graph = plain_with_dense();
  const ChannelClasses classes(graph);
  EXPECT_TRUE(producer_names(graph, "flatten").empty());
  EXPECT_TRUE(classes.may_widen(graph.find("conv2")));
  EXPECT_TRUE(classes.may_widen(graph.find("fc1")));
  EXPECT_FALSE(classes.may_widen(graph.find("flatten")));
}

TEST(ChannelClasses, ASumOverAFlattenedMapFixesItsSource) {
  ModelGraph graph;
  NodeId x = graph.add("input", Input{InputKind::images, 1, 4, 4, 0}, {});
  const NodeId flat = graph.add("flatten", Flatten{}, {graph.add("conv", conv(2, 3), {x})});
  const NodeId dense = graph.add("dense", Linear{32, true, {}}, {flat});
  const NodeId sum = graph.add("sum", Add{}, {flat, dense});
  graph.add("loss", CrossEntropy{}, {graph.add("fc", Linear{3, true, {}}, {sum})});
  const ChannelClasses classes(graph);
  EXPECT_FALSE(classes.may_widen(graph.find("conv")));
  EXPECT_FALSE(classes.may_widen(dense));
}

TEST(ChannelClasses, DepthwiseConvolutionsFollowAndGroupsSetTheGranularity) {
  const ModelGraph graph = grouped_with_concat();
  const ChannelClasses classes(graph);
  EXPECT_TRUE(is_depthwise(graph, graph.find("depthwise")));
  EXPECT_FALSE(is_depthwise(graph, graph.find("grouped")));
  EXPECT_EQ(producer_names(graph, "stem_relu"), (std::vector<std::string>{"stem", "depthwise"}));
  EXPECT_EQ(classes.granularity(graph.find("point")), 3);
  EXPECT_EQ(classes.granularity(graph.find("grouped")), 3);
  EXPECT_EQ(classes.granularity(graph.find("stem")), 1);
  EXPECT_TRUE(classes.may_widen(graph.find("side")));
}

TEST(ChannelClasses, NodesThatTieChannelsToSomethingElseFixTheirNeighbours) {
  ModelGraph graph;
  NodeId x = graph.add("input", Input{InputKind::images, 1, 4, 4, 0}, {});
  x = graph.add("conv", conv(6, 3), {x});
  x = graph.add("sequence", ToSequence{}, {x});
  x = graph.add("attention", Attention{1, 1, 2, false, false}, {x});
  x = graph.add("first", TakeToken{0}, {x});
  graph.add("loss", CrossEntropy{}, {graph.add("fc", Linear{3, true, {}}, {x})});
  EXPECT_FALSE(ChannelClasses(graph).may_widen(graph.find("conv")));
}

TEST(MainChain, IsTheLongestPath) {
  const ModelGraph graph = small_resnet();
  std::vector<std::string> names;
  for (NodeId id : main_chain(graph)) names.push_back(graph.node(id).name);
  EXPECT_EQ(names.front(), "input");
  EXPECT_EQ(names.back(), "loss");
  EXPECT_EQ(std::count(names.begin(), names.end(), "layer2.0.conv1"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "layer2.0.downsample.0"), 0);
}

}  // namespace
}  // namespace heteroperf
