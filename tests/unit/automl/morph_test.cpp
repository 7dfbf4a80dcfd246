#include "automl/morph.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "automl/graph_rebuild.hpp"
#include "automl/trial.hpp"
#include "metrics/base/error.hpp"
#include "tests/unit/automl/sample_graphs.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph_json.hpp"

namespace heteroperf {
namespace {

/// Strict training operations by a count of its own: 2 per multiply-add, forward plus two backward
/// products, the first convolution without input gradient.
std::uint64_t independent_count(const ModelGraph& graph) {
  std::uint64_t total = 0;
  bool first = true;
  for (const Node& node : graph.nodes()) {
    std::int64_t forward = 0;
    const Shape in = node.inputs.empty() ? Shape{} : graph.node(node.inputs[0]).output;
    if (const auto* c = std::get_if<Conv2d>(&node.attributes)) {
      forward = 2 * c->kernel[0] * c->kernel[1] * (in[0] / c->groups) * element_count(node.output);
    } else if (const auto* l = std::get_if<Linear>(&node.attributes)) {
      forward = 2 * in.back() * l->out_features;
    }
    if (forward == 0) continue;
    total += static_cast<std::uint64_t>(forward) * (first ? 2 : 3);
    first = false;
  }
  return total;
}

void expect_consistent(const ModelGraph& graph) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes()) {
    EXPECT_TRUE(names.insert(node.name).second) << node.name;
    for (std::int64_t extent : node.output) EXPECT_GT(extent, 0) << node.name;
    if (std::holds_alternative<Add>(node.attributes)) {
      for (NodeId input : node.inputs) EXPECT_EQ(graph.node(input).output, node.output);
    }
    if (const auto* c = std::get_if<Conv2d>(&node.attributes)) {
      const std::int64_t channels = graph.node(node.inputs[0]).output[0];
      EXPECT_EQ(node.parameters[0].shape,
                (Shape{c->out_channels, channels / c->groups, c->kernel[0], c->kernel[1]}));
      EXPECT_EQ(node.output[0], c->out_channels);
    }
  }
  EXPECT_NO_THROW(graph.loss());
}

const Node& by_name(const ModelGraph& graph, const std::string& name) {
  return graph.node(graph.find(name));
}

/// First convolution and classifier keep what makes them what they are.
void expect_ends_kept(const ModelGraph& before, const ModelGraph& after) {
  const auto is_conv = [](const Node& n) { return std::holds_alternative<Conv2d>(n.attributes); };
  const auto stem = *std::find_if(before.nodes().begin(), before.nodes().end(), is_conv);
  const auto& old_stem = std::get<Conv2d>(stem.attributes);
  const auto& new_stem = std::get<Conv2d>(by_name(after, stem.name).attributes);
  EXPECT_EQ(old_stem.kernel, new_stem.kernel);
  EXPECT_EQ(old_stem.stride, new_stem.stride);
  const std::string classifier = before.node(before.node(before.loss()).inputs[0]).name;
  EXPECT_EQ(by_name(before, classifier).attributes, by_name(after, classifier).attributes);
  EXPECT_EQ(after.node(after.node(after.loss()).inputs[0]).name, classifier);
}

class MorphChains : public testing::TestWithParam<std::uint64_t> {};

TEST_P(MorphChains, EveryMorphGivesAValidLargerGraphWithStableNames) {
  RandomStream random(GetParam());
  for (ModelGraph graph : sample_graphs()) {
    MorphLimits limits;
    limits.max_layers = 40;
    limits.max_width = 256;
    std::set<std::string> hashes{graph.hash()};
    for (int step = 0; step < 14; ++step) {
      const auto morphed = random_morph(graph, limits, random);
      if (!morphed) break;
      SCOPED_TRACE(graph.name + ": " + morphed->text);
      expect_consistent(morphed->graph);
      expect_ends_kept(graph, morphed->graph);
      EXPECT_TRUE(hashes.insert(morphed->graph.hash()).second);
      for (const Node& node : graph.nodes()) EXPECT_NO_THROW(morphed->graph.find(node.name));
      EXPECT_EQ(strict_train_ops(morphed->graph, 1), Ops(independent_count(morphed->graph)));
      EXPECT_TRUE(within_limits(morphed->graph, limits));
      const std::string text = graph_to_text(morphed->graph);
      const ModelGraph again = graph_from_text(text, "test");
      EXPECT_EQ(graph_to_text(again), text);
      EXPECT_EQ(again.hash(), morphed->graph.hash());
      graph = morphed->graph;
    }
    EXPECT_GE(hashes.size(), 6u) << graph.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, MorphChains, testing::Range(std::uint64_t{1}, std::uint64_t{13}));

TEST(Deepen, MovesEveryConsumerBehindTheNewLayers) {
  const ModelGraph graph = small_resnet();
  const Morphed plain = deepen(graph, graph.find("layer1.0.relu"), DeeperForm::plain);
  EXPECT_EQ(plain.text, "deeper1 after layer1.0.relu");
  for (NodeId consumer : graph.consumers(graph.find("layer1.0.relu"))) {
    const Node& after = by_name(plain.graph, graph.node(consumer).name);
    EXPECT_NE(std::find(after.inputs.begin(), after.inputs.end(), plain.graph.find("deeper1.relu")),
              after.inputs.end());
  }
  const ModelGraph& once = plain.graph;
  const Morphed residual = deepen(once, once.find("deeper1.relu"), DeeperForm::residual);
  EXPECT_EQ(residual.text, "deeper2 after deeper1.relu (residual)");
  EXPECT_EQ(by_name(residual.graph, "deeper2.add").inputs[1], residual.graph.find("deeper1.relu"));
}

TEST(Deepen, RefusesNodesThatAreNoActivationOfAMap) {
  const ModelGraph graph = plain_with_dense();
  EXPECT_THROW(deepen(graph, graph.find("conv1"), DeeperForm::plain), Error);
  EXPECT_THROW(deepen(graph, graph.find("relu3"), DeeperForm::plain), Error);
}

TEST(Deepen, LeavesSmallMapsAlone) {
  const ModelGraph graph = small_resnet();  // maps of 16, 8 and 4
  MorphLimits limits;
  limits.min_spatial_size = 8;
  for (NodeId site : deeper_sites(graph, limits)) EXPECT_GE(graph.node(site).output[1], 8);
  limits.min_spatial_size = 32;
  EXPECT_TRUE(deeper_sites(graph, limits).empty());
}

TEST(Widen, ChangesTheWholeClassAndNothingElse) {
  const ModelGraph graph = small_resnet();
  const Morphed wider = widen(graph, graph.find("layer1.1.conv2"), 14);
  EXPECT_EQ(wider.text, "wider conv1 8→14 (with 2 more)");
  for (const char* name : {"conv1", "layer1.0.conv2", "layer1.1.conv2", "layer1.1.relu"}) {
    EXPECT_EQ(by_name(wider.graph, name).output[0], 14) << name;
  }
  for (const char* name : {"layer1.0.conv1", "layer2.0.conv1", "fc"}) {
    EXPECT_EQ(by_name(wider.graph, name).output, by_name(graph, name).output) << name;
  }
}

TEST(Widen, DepthwiseConvolutionsFollowAndGroupsStayDivisible) {
  const ModelGraph graph = grouped_with_concat();
  const ModelGraph wider = widen(graph, graph.find("stem"), 13).graph;
  EXPECT_EQ(std::get<Conv2d>(by_name(wider, "depthwise").attributes).groups, 13);
  EXPECT_THROW(widen(graph, graph.find("point"), 20), Error);
  EXPECT_EQ(by_name(widen(graph, graph.find("point"), 21).graph, "grouped").parameters[0].shape[1],
            7);
}

TEST(Widen, RefusesClassifierSampleAndSmallerWidths) {
  const ModelGraph graph = small_resnet();
  EXPECT_THROW(widen(graph, graph.find("fc"), 20), Error);
  EXPECT_THROW(widen(graph, graph.find("input"), 6), Error);
  EXPECT_THROW(widen(graph, graph.find("conv1"), 8), Error);
}

TEST(AddSkip, ProjectsWithTheStrideThatTheMapsNeed) {
  const ModelGraph graph = small_resnet();
  const Morphed skip = add_skip(graph, graph.find("relu"), graph.find("layer2.0.bn2"));
  EXPECT_EQ(skip.text, "skip1 relu → layer2.0.bn2 (1×1, stride 4)");
  const auto& projection = std::get<Conv2d>(by_name(skip.graph, "skip1.conv").attributes);
  EXPECT_EQ(projection.stride, (std::array<std::int64_t, 2>{4, 4}));
  EXPECT_EQ(projection.out_channels, 16);
  EXPECT_EQ(by_name(skip.graph, "layer2.0.add").inputs[0], skip.graph.find("skip1.add"));
}

TEST(AddSkip, IsDirectWhereTheShapesAgree) {
  const ModelGraph graph = small_resnet();
  const Morphed skip = add_skip(graph, graph.find("layer1.0.relu1"), graph.find("layer1.1.bn2"));
  EXPECT_EQ(skip.graph.nodes().size(), graph.nodes().size() + 1);
  EXPECT_EQ(by_name(skip.graph, "skip1.add").inputs[1], skip.graph.find("layer1.0.relu1"));
}

TEST(AddSkip, RefusesAPathThatIsThere) {
  const ModelGraph graph = small_resnet();
  // The block's own shortcut, direct in stage 1 and projected in stage 2.
  EXPECT_THROW(add_skip(graph, graph.find("layer1.0.relu"), graph.find("layer1.1.bn2")), Error);
  EXPECT_THROW(add_skip(graph, graph.find("layer1.1.relu"), graph.find("layer2.0.add")), Error);
  const ModelGraph once = add_skip(graph, graph.find("relu"), graph.find("layer2.0.bn2")).graph;
  EXPECT_THROW(add_skip(once, once.find("relu"), once.find("layer2.0.bn2")), Error);
  EXPECT_THROW(add_skip(once, once.find("relu"), once.find("skip1.add")), Error);
}

TEST(AddSkip, RefusesBackwardsAndForeignEnds) {
  const ModelGraph graph = small_resnet();
  EXPECT_THROW(add_skip(graph, graph.find("layer2.0.relu"), graph.find("bn1")), Error);
  EXPECT_THROW(add_skip(graph, graph.find("conv1"), graph.find("layer2.0.bn2")), Error);
  EXPECT_THROW(add_skip(graph, graph.find("relu"), graph.find("layer2.0.downsample.1")), Error);
}

TEST(Sites, EverySiteIsLegal) {
  std::size_t skips = 0;
  for (const ModelGraph& graph : sample_graphs()) {
    const MorphLimits limits;
    for (NodeId site : deeper_sites(graph, limits)) {
      expect_consistent(deepen(graph, site, DeeperForm::plain).graph);
      expect_consistent(deepen(graph, site, DeeperForm::residual).graph);
    }
    for (NodeId site : wider_sites(graph, limits)) {
      expect_consistent(widen(graph, site, 2 * graph.node(site).output[0]).graph);
    }
    const std::vector<NodeId> chain = main_chain(graph);
    for (const NodeId from : chain) {
      for (const NodeId to : chain) {
        try {
          expect_consistent(add_skip(graph, from, to).graph);
          ++skips;
        } catch (const Error&) {  // no legal place
        }
      }
    }
  }
  EXPECT_GT(skips, 0u);
}

TEST(RandomMorph, FindsNothingWhereEverythingExceedsALimit) {
  const ModelGraph graph = small_resnet();
  MorphLimits limits;
  limits.max_ops_per_sample = strict_train_ops(graph, 1);
  limits.max_parameters = graph.parameter_count();
  limits.max_width = 1;
  RandomStream random(3);
  EXPECT_FALSE(random_morph(graph, limits, random).has_value());
}

TEST(Limits, EachOneBinds) {
  const ModelGraph graph = small_resnet();
  MorphLimits limits;
  ASSERT_TRUE(within_limits(graph, limits));
  const auto violated = [&](auto change) {
    MorphLimits tight = limits;
    change(tight);
    return !within_limits(graph, tight);
  };
  EXPECT_TRUE(violated([](MorphLimits& l) { l.max_layers = 5; }));
  EXPECT_TRUE(violated([&](MorphLimits& l) { l.max_parameters = graph.parameter_count() - 1; }));
  EXPECT_TRUE(violated([](MorphLimits& l) { l.max_width = 15; }));
  EXPECT_TRUE(violated(
      [&](MorphLimits& l) { l.max_ops_per_sample = strict_train_ops(graph, 1) - Ops(1); }));
}

}  // namespace
}  // namespace heteroperf
