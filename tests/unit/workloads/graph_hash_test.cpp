#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "metrics/base/random.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

/// The same graph with its nodes in a random order of computation, other names and branches.
ModelGraph disguised(const ModelGraph& graph, std::uint64_t seed) {
  RandomStream random(seed);
  const auto& nodes = graph.nodes();
  std::vector<NodeId> placed(nodes.size(), NodeId(-1));
  const auto ready = [&](const Node& node) {
    const auto* linear = std::get_if<Linear>(&node.attributes);
    const bool tie_waits =
        linear != nullptr && !linear->tied_to.empty() &&
        placed[static_cast<std::size_t>(graph.find(linear->tied_to).value())] == NodeId(-1);
    return !tie_waits && std::all_of(node.inputs.begin(), node.inputs.end(),
                                     [&](NodeId id) { return placed[id.index()] != NodeId(-1); });
  };
  ModelGraph result;
  while (result.nodes().size() < nodes.size()) {
    const std::size_t i = random.below(nodes.size());
    if (placed[i] != NodeId(-1) || !ready(nodes[i])) continue;
    Attributes attributes = nodes[i].attributes;
    if (auto* linear = std::get_if<Linear>(&attributes); linear && !linear->tied_to.empty()) {
      linear->tied_to = fmt::format("x{}", graph.find(linear->tied_to).value());
    }
    std::vector<NodeId> inputs;
    for (NodeId id : nodes[i].inputs) inputs.push_back(placed[id.index()]);
    placed[i] = result.add(fmt::format("x{}", i), attributes, inputs, "branch");
  }
  return result;
}

TEST(GraphHash, IgnoresNamesBranchesAndOrder) {
  for (const char* name : {"resnet18", "nano", "gpt2", "bert-base"}) {
    const ModelGraph graph = build_model(name);
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      EXPECT_EQ(disguised(graph, seed).hash(), graph.hash()) << name;
    }
  }
}

/// A small graph whose every property can be varied.
struct Variant {
  std::int64_t width = 4;
  std::array<std::int64_t, 2> stride{1, 1};
  double eps = 1e-5;
  Attributes activation = Relu{};
  bool bias = false;
  std::int64_t side = 8;

  std::string hash() const {
    ModelGraph graph;
    const NodeId x = graph.add("in", Input{InputKind::images, 3, side, side, 0}, {});
    const NodeId a = graph.add("a", Conv2d{width, {3, 3}, stride, {1, 1}, 1, bias}, {x});
    const NodeId b = graph.add("b", BatchNorm{eps, 0.1}, {a});
    const NodeId c = graph.add("c", activation, {b});
    graph.add("loss", CrossEntropy{}, {graph.add("pool", GlobalAvgPool{}, {c})});
    return graph.hash();
  }
};

TEST(GraphHash, SeesEveryAttribute) {
  const std::set<std::string> hashes{
      Variant{}.hash(),
      Variant{.width = 5}.hash(),
      Variant{.stride = {1, 2}}.hash(),
      Variant{.stride = {2, 1}}.hash(),
      Variant{.eps = 1e-6}.hash(),
      Variant{.activation = Silu{}}.hash(),
      Variant{.activation = Gelu{GeluForm::erf}}.hash(),
      Variant{.activation = Gelu{GeluForm::tanh}}.hash(),
      Variant{.bias = true}.hash(),
      Variant{.side = 9}.hash(),
  };
  EXPECT_EQ(hashes.size(), 10u);
}

/// Two equal convolutions feed two sums; `pairs` says which convolution goes into which slot.
std::string two_sums(const std::array<int, 4>& pairs) {
  ModelGraph graph;
  const NodeId x = graph.add("in", Input{InputKind::images, 3, 8, 8, 0}, {});
  const NodeId convs[] = {graph.add("c0", Conv2d{4}, {x}), graph.add("c1", Conv2d{4}, {x})};
  const NodeId first = graph.add("s0", Add{}, {convs[pairs[0]], convs[pairs[1]]});
  const NodeId second = graph.add("s1", Add{}, {convs[pairs[2]], convs[pairs[3]]});
  const NodeId product = graph.add("m", Multiply{}, {first, second});
  graph.add("loss", CrossEntropy{}, {graph.add("pool", GlobalAvgPool{}, {product})});
  return graph.hash();
}

// Nodes that look alike from the input side own different weights.
TEST(GraphHash, TellsSharedFromSeparateTensors) {
  EXPECT_NE(two_sums({0, 0, 1, 1}), two_sums({0, 1, 0, 1}));
  EXPECT_NE(two_sums({0, 1, 0, 1}), two_sums({0, 1, 1, 0}));
  EXPECT_EQ(two_sums({0, 1, 0, 1}), two_sums({1, 0, 1, 0}));
}

TEST(GraphHash, TellsATiedFromAnOwnHead) {
  const auto hash = [](const std::string& tied_to) {
    ModelGraph graph;
    const NodeId x = graph.add("in", Input{InputKind::tokens, 0, 0, 0, 3}, {});
    const NodeId e = graph.add("e", Embedding{5, 4}, {x});
    graph.add("loss", CrossEntropy{}, {graph.add("head", Linear{5, false, tied_to}, {e})});
    return graph.hash();
  };
  EXPECT_NE(hash(""), hash("e"));
}

// A change of these digits orphans every stored hash.
TEST(GraphHash, IsTheSameOnEveryMachine) {
  EXPECT_EQ(build_model("nano").hash(), "ca30316f33ade9eaf8f38158fef2a6ea");
}

}  // namespace
}  // namespace heteroperf
