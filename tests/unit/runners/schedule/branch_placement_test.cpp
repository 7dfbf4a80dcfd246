// Graphs of several branches without ranks: where `auto` lays them, and how near the result comes
// to what no order on that placement can beat.

#include "runners/schedule/search/branch_placement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/schedule/check/validator.hpp"
#include "runners/schedule/search/search.hpp"
#include "tests/unit/runners/schedule/generated.hpp"

namespace heteroperf {
namespace {

/// F, B and W of a stage.
struct BranchCosts {
  double forward = 1, input_gradient = 1, weight_gradient = 1;
};
constexpr BranchCosts cost_of(double each) { return {each, each, each}; }

/// Adds a branch of equal stages, each of which feeds the next, and gives its last stage.
SegmentId add_branch(PipelineGraph& graph, const std::string& name, int stages, BranchCosts costs) {
  for (int stage = 0; stage < stages; ++stage) {
    const SegmentId number(graph.segments.size());
    if (stage > 0) graph.edges.push_back({number - 1, number, 0, costs.input_gradient > 0});
    Segment segment;
    segment.name = name + " " + std::to_string(stage);
    segment.branch = name;
    segment.forward = costs.forward;
    segment.input_gradient = costs.input_gradient;
    segment.weight_gradient = costs.weight_gradient;
    graph.segments.push_back(segment);
  }
  return SegmentId(graph.segments.size() - 1);
}

PipelineGraph graph_without_ranks(int ranks, int micro_batches) {
  PipelineGraph graph;
  graph.ranks = ranks;
  graph.micro_batches = micro_batches;
  graph.unplaced = true;
  return graph;
}

/// Adds a loss that costs nothing and needs both ends.
void join(PipelineGraph& graph, SegmentId a, SegmentId b) {
  const SegmentId loss = add_branch(graph, "loss", 1, cost_of(0));
  graph.edges.push_back({a, loss});
  graph.edges.push_back({b, loss});
}

/// The result of `auto`, held against simulator and checks.
SearchResult place(PipelineGraph graph) {
  normalise(graph);
  const SearchResult result = search_auto(graph_request(std::move(graph)));
  EXPECT_TRUE(check_schedule(result.schedule).complete);
  EXPECT_FALSE(result.schedule.graph.unplaced);
  EXPECT_NEAR(timed(result.schedule).makespan, result.objective, 1e-9 * result.objective);
  EXPECT_EQ(result.placements.front().objective, result.objective);
  return result;
}

double objective_of(const SearchResult& result, const std::string& placement) {
  for (const PlacedCandidate& candidate : result.placements) {
    if (candidate.placement == placement) return candidate.objective;
  }
  ADD_FAILURE() << "no placement " << placement;
  return 0;
}

PipelineGraph two_equal_towers() {
  PipelineGraph graph = graph_without_ranks(8, 8);
  add_branch(graph, "image", 8, {});
  add_branch(graph, "text", 8, {});
  return graph;
}

TEST(BranchPlacement, TwoTowersJoinedPerMicroBatchReachTheBound) {
  PipelineGraph graph = two_equal_towers();
  join(graph, 7, 15);
  const SearchResult result = place(graph);
  EXPECT_EQ(result.objective, 51);
  EXPECT_EQ(result.lower_bound, 51);
  EXPECT_EQ(result.placements.front().placement, "opposite directions, joined after image");
  EXPECT_EQ(objective_of(result, "chimera over the chain"), 72);
}

TEST(BranchPlacement, TwoTowersWithOneLossOverTheStep) {
  PipelineGraph graph = two_equal_towers();
  graph.interactions = {{"loss", {7, 15}, 8, 0}};
  EXPECT_EQ(place(graph).objective, 57);
}

TEST(BranchPlacement, TwoStreamsThatExchangeAfterEachStage) {
  PipelineGraph graph = graph_without_ranks(4, 16);
  add_branch(graph, "a", 4, {});
  add_branch(graph, "b", 4, {});
  for (const SegmentId stage : first_ids<SegmentId>(3)) {
    graph.edges.push_back({stage, stage + 5});
    graph.edges.push_back({stage + 4, stage + 1});
  }
  const SearchResult result = place(graph);
  EXPECT_EQ(objective_of(result, "same ranks"), 102);
  EXPECT_EQ(result.objective, 97) << "in opposite directions both ends have work at once";
}

/// A vision tower of 34 units and a text tower of 6 on two ranks.
TEST(BranchPlacement, UnequalTowers) {
  PipelineGraph graph = graph_without_ranks(2, 2);
  add_branch(graph, "vision", 1, cost_of(20));
  add_branch(graph, "vision", 1, cost_of(14));
  graph.edges.push_back({0, 1});
  add_branch(graph, "text", 1, cost_of(6));
  join(graph, 1, 2);
  const SearchResult result = place(graph);
  EXPECT_EQ(objective_of(result, "chain, joined after vision"), 128);
  EXPECT_EQ(result.objective, 120) << "two copies of all weights";
  ASSERT_EQ(result.placements[1].placement, "chain, joined after vision");
  EXPECT_EQ(result.placements[1].lower_bound, 128);
}

/// The work of a cut is as even as the segments allow, whatever branch they belong to.
TEST(BranchPlacement, CutsShareTheWork) {
  PipelineGraph graph = graph_without_ranks(4, 4);
  const SegmentId end = add_branch(graph, "image", 4, cost_of(1));
  const SegmentId language = add_branch(graph, "language", 12, cost_of(1)) - 11;
  graph.edges.push_back({end, language});
  normalise(graph);
  for (const BranchPlacement& placement : branch_placements(graph)) {
    const std::vector<double> work = placement.graph.rank_work();
    const double most = *std::max_element(work.begin(), work.end());
    EXPECT_EQ(most, 4 * 4 * 3) << placement.name;
  }
}

/// Longer branches go forwards; every set of others runs backwards once. Equal placements are one.
TEST(BranchPlacement, NamesWhatItTried) {
  PipelineGraph graph = graph_without_ranks(3, 3);
  const SegmentId image = add_branch(graph, "image", 3, cost_of(0.5));
  const SegmentId audio = add_branch(graph, "audio", 3, cost_of(0.4));
  const SegmentId language = add_branch(graph, "language", 3, {}) - 2;
  graph.edges.push_back({image, language});
  graph.edges.push_back({audio, language});
  normalise(graph);
  std::vector<std::string> names;
  for (const BranchPlacement& placement : branch_placements(graph)) {
    names.push_back(placement.name);
    for (const SegmentId stage : first_ids<SegmentId>(2)) {
      const SegmentId at = language + stage.value();
      EXPECT_LE(placement.graph.segments[at].rank, placement.graph.segments[at + 1].rank);
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"chain", "disjoint", "same ranks", "image reversed",
                                             "audio reversed", "image and audio reversed",
                                             "image and audio on the first rank"}));
}

/// A limit of the memory holds for every placement; where none can keep it, that is an error.
TEST(BranchPlacement, KeepsTheMemoryLimit) {
  PipelineGraph graph = two_equal_towers();
  join(graph, 7, 15);
  normalise(graph);
  ScheduleRequest request = graph_request(graph);
  request.most_evaluations = 2000;
  request.memory_limit = 9;
  const ScheduleReport times = timed(search_auto(request).schedule);
  EXPECT_LE(*std::max_element(times.peak_memory.begin(), times.peak_memory.end()), 9 + 1e-9);
  request.memory_limit = 1;
  EXPECT_THROW(search_auto(request), UserError);
}

TEST(BranchPlacement, OtherSchedulesRefuseAGraphWithoutRanks) {
  PipelineGraph graph = two_equal_towers();
  normalise(graph);
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "wave"}) {
    EXPECT_NE(refusal(name, graph_request(graph)).find("Use auto"), std::string::npos) << name;
  }
}

/// One or two encoders of 0.1 to 0.6 of a language model's work, a third of them frozen.
PipelineGraph drawn_graph(RandomStream& random) {
  const int ranks = 2 + static_cast<int>(random.below(7));
  const int micro_batches = 2 * ranks + static_cast<int>(random.below(2 * ranks + 1));
  PipelineGraph graph = graph_without_ranks(ranks, micro_batches);
  std::vector<SegmentId> ends;
  for (std::uint64_t encoders = 1 + random.below(2); ends.size() < encoders;) {
    const double work = 0.1 + 0.5 * random.unit();
    const bool frozen = random.below(3) == 0;
    ends.push_back(add_branch(graph, ends.empty() ? "image" : "audio", ranks,
                              frozen ? BranchCosts{work, 0, 0} : cost_of(work)));
  }
  const SegmentId language = add_branch(graph, "language", ranks, {}) - (ranks - 1);
  for (const SegmentId end : ends) {
    graph.edges.push_back({end, language, 0, graph.segments[end].input_gradient > 0});
  }
  return graph;
}

TEST(BranchPlacement, DrawnGraphsComeNearTheirBounds) {
  RandomStream random(1);
  std::vector<double> gaps, gaps_along;
  for (int draw = 0; draw < 40; ++draw) {
    const SearchResult result = place(drawn_graph(random));
    gaps.push_back(result.objective / result.lower_bound - 1);
    for (const PlacedCandidate& candidate : result.placements) {
      EXPECT_GE(candidate.objective, candidate.lower_bound * (1 - 1e-9));
      EXPECT_GE(candidate.objective, result.objective);
      if (candidate.placement != "same ranks") continue;
      gaps_along.push_back(candidate.objective / result.objective - 1);
    }
  }
  std::sort(gaps.begin(), gaps.end());
  std::sort(gaps_along.begin(), gaps_along.end());
  EXPECT_LE(gaps[gaps.size() / 2], 0.02);
  EXPECT_LE(gaps.back(), 0.06);
  RecordProperty("worst_gap_per_mille", static_cast<int>(1000 * gaps.back()));
  // A placer that always lays encoders along the language model would lose this much.
  EXPECT_GT(gaps_along[gaps_along.size() / 2], 0.01);
}

}  // namespace
}  // namespace heteroperf
