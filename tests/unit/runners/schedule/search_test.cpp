#include "runners/schedule/search/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/schedule/check/validator.hpp"
#include "runners/schedule/generators/makers.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/search/order_problem.hpp"
#include "runners/schedule/simulate/report.hpp"
#include "tests/unit/runners/schedule/generated.hpp"

namespace heteroperf {
namespace {

double most_memory(const Schedule& schedule) {
  const std::vector<double> memory = memory_peaks(schedule).memory;
  return *std::max_element(memory.begin(), memory.end());
}

ScheduleRequest uniform_request(int ranks, int micro_batches, double f, double b, double w,
                                double latency) {
  ScheduleRequest request;
  request.ranks = ranks;
  request.micro_batches = micro_batches;
  request.costs = uniform_costs(ranks, f, b, w, latency);
  return request;
}

ScheduleRequest random_request(RandomStream& random, int ranks, int micro_batches) {
  ScheduleRequest request = uniform_request(ranks, micro_batches, 0, 0, 0, 0);
  StageCosts& costs = request.costs;
  for (auto* list : {&costs.forward, &costs.input_gradient, &costs.weight_gradient}) {
    for (double& cost : *list) cost = 0.5 + 1.5 * random.unit();
  }
  costs.latency = random.below(2) == 0 ? 0 : 0.06;
  return request;
}

/// All orders of one rank with ascending micro-batches that hold at most `limit`.
class RankOrders {
 public:
  RankOrders(const OrderProblem& problem, int rank, int micro_batches, double limit)
      : problem_(problem), rank_(rank), count_(micro_batches), limit_(limit) {
    extend(0);
  }
  std::vector<std::vector<std::int32_t>> orders;

 private:
  void extend(double held) {
    if (static_cast<int>(order_.size()) == 3 * count_) return orders.push_back(order_);
    for (int kind = 0; kind < 3; ++kind) {
      if (done_[kind] == count_ || (kind > 0 && done_[kind] == done_[kind - 1])) continue;
      const std::int32_t task =
          kind * problem_.slots() + problem_.first_slot(SegmentId(rank_)) + done_[kind];
      const double after = held + problem_.task(task).memory_change;
      if (after > limit_) continue;
      ++done_[kind];
      order_.push_back(task);
      extend(after);
      order_.pop_back();
      --done_[kind];
    }
  }

  const OrderProblem& problem_;
  int rank_, count_;
  double limit_;
  int done_[3] = {0, 0, 0};
  std::vector<std::int32_t> order_;
};

double optimum(const PipelineGraph& graph, Objective objective, double limit) {
  const OrderProblem problem(graph);
  OrderEvaluator evaluator(problem);
  const RankOrders first(problem, 0, graph.micro_batches, limit);
  const RankOrders second(problem, 1, graph.micro_batches, limit);
  double best = std::numeric_limits<double>::infinity();
  for (const auto& a : first.orders) {
    for (const auto& b : second.orders) {
      std::vector<std::int32_t> order = a;
      order.insert(order.end(), b.begin(), b.end());
      if (!evaluator.evaluate(order)) continue;
      best = std::min(best, objective == Objective::makespan ? evaluator.times().makespan
                                                             : evaluator.times().longest_span);
    }
  }
  return best;
}

TEST(Search, FindsTheOptimumOfTinyCases) {
  RandomStream random(1);
  for (int i = 0; i < 60; ++i) {
    ScheduleRequest request = random_request(random, 2, 2 + i % 2);
    request.memory_limit = 1.0 + static_cast<double>(random.below(5)) / 2;
    request.objective = random.below(3) == 0 ? Objective::span : Objective::makespan;
    const PipelineGraph graph =
        chain_graph(2, request.micro_batches, 1, ChainPlacement::looped, request.costs);
    const SearchResult result = search_schedule(graph, request);
    EXPECT_NEAR(result.objective, optimum(graph, request.objective, *request.memory_limit), 1e-9)
        << i;
    EXPECT_LE(most_memory(result.schedule), *request.memory_limit);
  }
}

/// Stages that recompute keep little from F to B and much from B to W: an order that counts
/// forwards alone would put the W's off.
TEST(Search, KeepsTheRoomForWhatABackwardMakesAgain) {
  PipelineGraph graph = chain_graph(4, 12, 1, ChainPlacement::looped, uniform_costs(4, 1, 2, 1, 0));
  for (Segment& segment : graph.segments) {
    segment.activation = 0.02;
    segment.weight_part = 20;  // 0.4 of the room
  }
  ScheduleRequest request;
  request.most_evaluations = 400;
  const Schedule free = search_schedule(graph, request).schedule;
  EXPECT_GT(most_memory(free), 1);
  request.memory_limit = limit_to_room(graph);
  ASSERT_TRUE(request.memory_limit.has_value());
  const SearchResult kept = search_schedule(graph, request);
  EXPECT_LE(most_memory(kept.schedule), *request.memory_limit + 1e-9);
  EXPECT_LT(kept.objective, 1.2 * (12 + 3) * 4);
}

/// A rank that has no room for one micro-batch counts as if it had that, so that an order is found
/// and the ledger can tell what it takes.
TEST(Search, FindsTheLeastOrderWhereThereIsNoRoom) {
  PipelineGraph graph = chain_graph(3, 6, 1, ChainPlacement::looped, uniform_costs(3, 1, 1, 1, 0));
  graph.segments[SegmentId(1)].activation = 5;
  graph.segments[SegmentId(2)].activation = 0.5;
  ScheduleRequest request;
  request.most_evaluations = 200;
  request.memory_limit = limit_to_room(graph);
  EXPECT_EQ(request.memory_limit, 1.0);
  const std::vector<double> peaks = memory_peaks(search_schedule(graph, request).schedule).memory;
  EXPECT_LE(*std::ranges::max_element(peaks), 1 + 1e-9);
}

struct ZeroBubbleRow {
  int ranks, micro_batches;
  double f, b, w, latency, one, two;  // published bubble rates of the span
};
constexpr ZeroBubbleRow zero_bubble_rows[] = {
    {8, 24, 18522, 18086, 9337, 601, .1585, .0433},
    {8, 32, 18513, 18086, 9331, 626, .1242, .0039},
    {8, 64, 18546, 18097, 9321, 762, .0674, .0026},
    {8, 24, 29718, 29444, 19927, 527, .1323, .0029},
    {8, 32, 29802, 29428, 19530, 577, .1045, .0022},
    {8, 64, 29935, 29621, 19388, 535, .0554, .0010},
    {16, 48, 11347, 11248, 8132, 377, .1397, .0066},
};
constexpr double four_digits = 0.5e-4;

TEST(Search, ReachesThePublishedBubbles) {
  for (const ZeroBubbleRow& row : zero_bubble_rows) {
    ScheduleRequest request =
        uniform_request(row.ranks, row.micro_batches, row.f, row.b, row.w, row.latency);
    const Schedule one = make_zb_1p(request), two = make_zb_2p(request);
    EXPECT_LE(timed(one).bubble_rate_span, row.one + four_digits) << row.micro_batches;
    EXPECT_LE(timed(two).bubble_rate_span, row.two + four_digits) << row.micro_batches;
    EXPECT_LE(most_memory(one), row.ranks);
    EXPECT_LE(most_memory(two), 2 * row.ranks);
  }
}

TEST(Search, AutoReachesThePublishedBubblesToo) {
  for (const ZeroBubbleRow& row : {zero_bubble_rows[0], zero_bubble_rows[1], zero_bubble_rows[3]}) {
    ScheduleRequest request =
        uniform_request(row.ranks, row.micro_batches, row.f, row.b, row.w, row.latency);
    request.objective = Objective::span;
    request.memory_limit = 2 * row.ranks;
    EXPECT_LE(timed(make_auto(request)).bubble_rate_span, row.two + four_digits);
    request.memory_limit = row.ranks;
    EXPECT_LE(timed(make_auto(request)).bubble_rate_span, row.one + four_digits);
  }
}

TEST(Search, IsNeverWorseThanATemplateThatFits) {
  RandomStream random(4);
  int near = 0, cases = 0;
  for (; cases < 20; ++cases) {
    const int ranks = 2 + static_cast<int>(random.below(9));
    ScheduleRequest request = random_request(random, ranks, (random.below(2) == 0 ? 2 : 4) * ranks);
    request.memory_limit = 2 * ranks;
    request.most_evaluations = 4000;
    const Schedule found = make_auto(request);
    const ScheduleReport times = timed(found);
    EXPECT_LE(most_memory(found), *request.memory_limit);
    for (const auto make :
         {make_gpipe, make_1f1b, make_zb_h1, make_zb_h2, make_zb_1p, make_zb_2p}) {
      const Schedule schedule = make(request);
      if (most_memory(schedule) > *request.memory_limit) continue;
      EXPECT_LE(times.makespan, timed(schedule).makespan * (1 + 1e-12)) << schedule.name;
    }
    near += times.makespan <= 1.03 * times.lower_bound ? 1 : 0;
  }
  EXPECT_GE(near, cases * 9 / 10);
}

ScheduleRequest alternating() {
  ScheduleRequest request = uniform_request(8, 16, 20, 20, 10, 2);
  for (int rank = 1; rank < 8; rank += 2) {
    request.costs.forward[rank] = request.costs.input_gradient[rank] = 10;
    request.costs.weight_gradient[rank] = 5;
  }
  return request;
}

TEST(Search, AlternatingStages) {
  ScheduleRequest request = alternating();
  request.memory_limit = 8;
  const ScheduleReport tight = timed(make_auto(request));
  EXPECT_EQ(tight.lower_bound, 902);
  EXPECT_LE(tight.makespan, 922);
  request.memory_limit = 16;
  EXPECT_EQ(timed(make_auto(request)).makespan, 902);
}

TEST(Search, MoreMemoryIsNeverWorse) {
  RandomStream random(5);
  for (int i = 0; i < 4; ++i) {
    ScheduleRequest request = i == 0 ? alternating() : random_request(random, 4, 12);
    request.most_evaluations = 1000;
    double before = std::numeric_limits<double>::infinity();
    for (int limit = 1; limit <= 13; ++limit) {
      request.memory_limit = limit;
      const double makespan = timed(make_auto(request)).makespan;
      EXPECT_LE(makespan, before * (1 + 1e-12)) << limit;
      before = makespan;
    }
    request.memory_limit.reset();
    EXPECT_LE(timed(make_auto(request)).makespan, before * (1 + 1e-12));
  }
}

Segment tower(const char* branch, int rank, double cost, double activation) {
  Segment segment;
  segment.branch = branch;
  segment.rank = rank;
  segment.forward = segment.input_gradient = segment.weight_gradient = cost;
  segment.activation = activation;
  return segment;
}

TEST(Search, TwoBranchesOnTwoRanks) {
  ScheduleRequest request;
  PipelineGraph graph;
  graph.ranks = graph.micro_batches = 2;
  graph.segments = {tower("vision", 0, 20, 1), tower("vision", 1, 14, 0.7),
                    tower("text", 1, 6, 0.3), tower("", 1, 0, 0)};
  graph.edges = {{0, 1}, {1, 3}, {2, 3}};
  request.graph = graph;
  const Schedule schedule = make_auto(request);
  EXPECT_EQ(timed(schedule).makespan, 128);
  EXPECT_EQ(timed(schedule).lower_bound, 128);
}

TEST(Search, TwoTowersInOppositeDirections) {
  for (const int joins : {1, 2}) {  // one loss, or one at each end
    ScheduleRequest request;
    PipelineGraph graph;
    graph.ranks = graph.micro_batches = 8;
    for (int stage = 0; stage < 8; ++stage) graph.segments.push_back(tower("a", stage, 8, 0.5));
    for (int stage = 0; stage < 8; ++stage) graph.segments.push_back(tower("b", 7 - stage, 8, 0.5));
    for (const SegmentId stage : first_ids<SegmentId>(7)) {
      graph.edges.push_back({stage, stage + 1});
      graph.edges.push_back({stage + 8, stage + 9});
    }
    for (int join = 0; join < joins; ++join) {
      const SegmentId segment(16 + join);
      graph.segments.push_back(tower("", join == 0 ? 7 : 0, 0, 0));
      graph.edges.push_back({7, segment});
      graph.edges.push_back({15, segment});
    }
    request.graph = graph;
    const Schedule schedule = make_auto(request);
    EXPECT_LE(timed(schedule).makespan, 460) << joins;
    EXPECT_TRUE(check_schedule(schedule).complete);
  }
}

TEST(Search, IsDeterministicForASeedAndKeepsItsBudget) {
  ScheduleRequest request = alternating();
  request.memory_limit = 8;
  request.most_evaluations = 700;
  const PipelineGraph graph = chain_graph(8, 16, 1, ChainPlacement::looped, request.costs);
  const SearchResult first = search_schedule(graph, request);
  const SearchResult again = search_schedule(graph, request);
  EXPECT_EQ(first.schedule, again.schedule);
  EXPECT_EQ(first.evaluations, again.evaluations);
  EXPECT_LE(first.evaluations, 700);
  EXPECT_GT(first.evaluations, 200);
  EXPECT_FALSE(first.out_of_time);
  EXPECT_NEAR(timed(first.schedule).makespan, first.objective, 1e-9);
  const SearchResult all = search_auto(request);
  EXPECT_LE(all.evaluations, 700 + 3);  // shares are rounded up
  EXPECT_EQ(all.schedule, make_auto(request));
}

TEST(Search, StopsAtTheBound) {
  ScheduleRequest request = uniform_request(1, 10, 1, 1, 1, 0);
  const PipelineGraph graph = chain_graph(1, 10, 1, ChainPlacement::looped, request.costs);
  const SearchResult result = search_schedule(graph, request);
  EXPECT_TRUE(result.proven);
  EXPECT_EQ(result.objective, 30);
  EXPECT_EQ(result.evaluations, 1);
}

TEST(Search, TakesOneEvaluation) {
  ScheduleRequest request = uniform_request(4, 8, 1, 1, 1, 0);
  request.most_evaluations = 1;
  EXPECT_TRUE(check_schedule(make_auto(request)).complete);
}

TEST(Search, ALimitThatAdmitsNoOrderIsAnError) {
  ScheduleRequest request = uniform_request(4, 8, 1, 1, 1, 0);
  for (const double limit : {0.0, 0.5, -1.0}) {
    request.memory_limit = limit;
    EXPECT_THROW(make_auto(request), UserError);
    EXPECT_THROW(make_wave(request), UserError);
  }
}

TEST(Search, WavesAreEven) {
  ScheduleRequest request = uniform_request(4, 8, 1, 1, 1, 0);
  request.most_evaluations = 400;
  for (const int chunks : {2, 4, 6}) {
    request.chunks = chunks;
    const Schedule schedule = make_wave(request);
    EXPECT_EQ(schedule.chunks, chunks);
    EXPECT_EQ(schedule.graph.segments[4].rank, 3);
    EXPECT_TRUE(check_schedule(schedule).complete);
    EXPECT_LT(timed(schedule).makespan,
              timed(make_1f1b(uniform_request(4, 8, 1, 1, 1, 0))).makespan);
  }
  request.chunks = 3;
  try {
    make_wave(request);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("Give 2 or 4 chunks."), std::string::npos);
  }
}

TEST(Search, TakesChunksAndParts) {
  ScheduleRequest request = uniform_request(3, 6, 1, 1, 1, 0.1);
  request.most_evaluations = 300;
  request.chunks = 2;
  const Schedule chunked = make_auto(request);
  EXPECT_TRUE(check_schedule(chunked).complete);
  EXPECT_LE(timed(chunked).makespan, timed(make_interleaved_1f1b(request)).makespan + 1e-9);
  EXPECT_LE(timed(chunked).makespan, timed(make_zb_v(request)).makespan + 1e-9);
  request.chunks.reset();
  request.parts = 2;
  const Schedule parted = make_auto(request);
  EXPECT_TRUE(check_schedule(parted).complete);
  EXPECT_LE(timed(parted).makespan, timed(make_seq1f1b(request)).makespan + 1e-9);
}

}  // namespace
}  // namespace heteroperf
