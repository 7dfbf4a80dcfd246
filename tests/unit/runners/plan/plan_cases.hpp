#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/plan.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// `layers` linears of one width; node "y0" … behind an embedding "x", the loss at the end.
inline ModelGraph linear_chain(int layers, std::int64_t width = 8, std::int64_t length = 4) {
  ModelGraph graph;
  Input input;
  input.kind = InputKind::tokens;
  input.length = length;
  const NodeId tokens = graph.add("tokens", input, {});
  NodeId last = graph.add("x", Embedding{16, width}, {tokens});
  for (int i = 0; i < layers; ++i) {
    last = graph.add("y" + std::to_string(i), Linear{width, false, ""}, {last});
  }
  const NodeId head = graph.add("head", Linear{16, false, ""}, {last});
  graph.add("loss", CrossEntropy{}, {head});
  return graph;
}

/// Two rows of each of a sample's items go through the linear "rows", in the first three nodes, and
/// are put among its eight tokens.
inline ModelGraph items_in_text(std::int64_t fewest, std::int64_t most) {
  ModelGraph graph;
  const Input items{InputKind::tokens, 0, 0, 0, 2, most, fewest};
  NodeId rows = graph.add("items", items, {}, "items");
  rows = graph.add("item", Embedding{16, 8}, {rows}, "items");
  rows = graph.add("rows", Linear{8, false, ""}, {rows}, "items");
  const NodeId tokens = graph.add("tokens", Input{InputKind::tokens, 0, 0, 0, 8}, {});
  const NodeId words = graph.add("words", Embedding{16, 8}, {tokens});
  const NodeId both = graph.add("both", InsertTokens{1}, {words, tokens, rows});
  const NodeId head = graph.add("head", Linear{16, false, ""}, {both});
  graph.add("loss", CrossEntropy{}, {head});
  return graph;
}

/// Linears with sums of earlier outputs here and there, perhaps a tied head: random cuts of it have
/// skip edges across stages.
inline ModelGraph random_graph(std::mt19937_64& random, int layers) {
  ModelGraph graph;
  Input input;
  input.kind = InputKind::tokens;
  input.length = 4;
  const NodeId tokens = graph.add("tokens", input, {});
  std::vector<NodeId> made{graph.add("x", Embedding{16, 8}, {tokens})};
  for (int i = 0; i < layers; ++i) {
    const NodeId other = made[random() % made.size()];
    if (random() % 3 == 0 && other != made.back()) {
      made.push_back(graph.add("sum" + std::to_string(i), Add{}, {made.back(), other}));
    }
    made.push_back(
        graph.add("y" + std::to_string(i), Linear{8, random() % 2 == 0, ""}, {made.back()}));
  }
  const std::string tied = random() % 2 == 0 ? "x" : "";
  const NodeId head = graph.add("head", Linear{16, false, tied}, {made.back()});
  graph.add("loss", CrossEntropy{}, {head});
  return graph;
}

/// The plan's stages cut after the nodes with these numbers, one rank each.
inline Plan chain_plan(const ModelGraph& graph, const std::vector<std::size_t>& ends) {
  Plan plan;
  std::size_t begin = 0;
  for (std::size_t s = 0; s <= ends.size(); ++s) {
    const std::size_t end = s < ends.size() ? ends[s] : graph.nodes().size();
    PlanStage& stage = plan.stages.emplace_back();
    for (; begin < end; ++begin) stage.nodes.push_back(graph.nodes()[begin].name);
    stage.replicas.push_back({{RankId(s)}, 1, "", 0});
  }
  return plan;
}

/// One class of `rate` operations a second, one link of α + n / `bandwidth` everywhere.
inline Cluster flat_cluster(int ranks, double rate, double latency_s, double bandwidth) {
  Cluster cluster;
  cluster.name = "flat";
  DeviceClass one;
  one.name = "one";
  one.kind = DeviceKind::paced;
  one.memory = Bytes(1u << 30);
  one.count = ranks;
  one.rates["fp32"] = OpsPerSecond(rate);
  cluster.classes.push_back(one);
  cluster.ranks.assign(static_cast<std::size_t>(ranks), RankPlace{"one", "", "all", {}});
  cluster.links.push_back(
      {"all", "all", {}, LinkCurve(Seconds(latency_s), BytesPerSecond(bandwidth)), "given"});
  return cluster;
}

/// All problems that `run` throws as UserError, as one text; empty: it did not throw.
template <class Run>
std::string problems_of(Run&& run) {
  try {
    run();
  } catch (const UserError& error) {
    std::string text;
    for (const Problem& problem : error.problems()) text += problem.text() + "\n";
    return text;
  }
  return "";
}

inline testing::AssertionResult says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in:\n" << text;
}

}  // namespace heteroperf
