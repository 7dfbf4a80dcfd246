#include "runners/schedule/simulate/simulator.hpp"

#include <gtest/gtest.h>

#include "metrics/base/error.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/simulate/report.hpp"

namespace heteroperf {
namespace {

Schedule two_ranks(double latency, std::vector<std::vector<Instruction>> programs,
                   int micro_batches) {
  Schedule schedule;
  schedule.graph =
      chain_graph(2, micro_batches, 1, ChainPlacement::looped, uniform_costs(2, 2, 3, 1, latency));
  schedule.programs = std::move(programs);
  return schedule;
}

/// F, BW of two micro-batches: 1F1B by hand.
Schedule by_hand(double latency) {
  return two_ranks(latency,
                   {{compute(Op::forward, 0, 0), compute(Op::forward, 0, 1),
                     compute(Op::backward, 0, 0), compute(Op::backward, 0, 1)},
                    {compute(Op::forward, 1, 0), compute(Op::backward, 1, 0),
                     compute(Op::forward, 1, 1), compute(Op::backward, 1, 1)}},
                   2);
}

TEST(Simulator, TimesByHand) {
  const Schedule schedule = by_hand(0.5);
  const Timeline timeline = simulate(schedule);
  EXPECT_EQ(timeline.spans[0], (std::vector<TimeSpan>{{0, 2}, {2, 4}, {9, 13}, {15, 19}}));
  EXPECT_EQ(timeline.spans[1],
            (std::vector<TimeSpan>{{2.5, 4.5}, {4.5, 8.5}, {8.5, 10.5}, {10.5, 14.5}}));
}

TEST(Simulator, ReportsWhereTheTimeWent) {
  const Schedule schedule = by_hand(0.5);
  const ScheduleReport r = report(schedule, simulate(schedule));
  EXPECT_EQ(r.makespan, 19);
  EXPECT_EQ(r.longest_span, 19);
  EXPECT_DOUBLE_EQ(r.bubble_rate_makespan, 1 - 24.0 / 38);
  EXPECT_EQ(r.ranks[0].busy, 12);
  EXPECT_EQ(r.ranks[0].idle, 7);
  EXPECT_EQ(r.ranks[0].warm_up, 0);
  EXPECT_EQ(r.ranks[0].dependency, 4.5 + 1.5);  // until 8.5 and 14.5
  EXPECT_EQ(r.ranks[0].communication, 1);
  EXPECT_EQ(r.ranks[1].warm_up, 2.5);
  EXPECT_EQ(r.ranks[1].imbalance, 4.5);
  for (const RankTimes& rank : r.ranks) {
    EXPECT_EQ(rank.idle, rank.warm_up + rank.dependency + rank.communication + rank.imbalance);
  }
}

TEST(Simulator, TheCriticalPathIsContiguous) {
  const Schedule schedule = by_hand(0.5);
  const ScheduleReport r = report(schedule, simulate(schedule));
  ASSERT_FALSE(r.critical_path.empty());
  EXPECT_EQ(r.critical_path.front().span.start, 0);
  EXPECT_EQ(r.critical_path.back().span.end, r.makespan);
  for (std::size_t i = 1; i < r.critical_path.size(); ++i) {
    const PathStep &a = r.critical_path[i - 1], &b = r.critical_path[i];
    EXPECT_EQ(b.span.start - a.span.end, a.rank == b.rank ? 0 : 0.5) << i;
  }
}

TEST(Simulator, AFusedPairRunsAsOne) {
  Schedule schedule = by_hand(0);
  schedule.graph.fused_cost_factor = 0.5;
  std::swap(schedule.programs[1][1], schedule.programs[1][2]);  // F0 F1 BW0 BW1
  schedule.programs[1][1].fused_with_next = true;               // (F1, BW0)
  const Timeline timeline = simulate(schedule);
  EXPECT_EQ(timeline.spans[1][1], (TimeSpan{4, 7}));  // (2 + 4) / 2
  EXPECT_EQ(timeline.spans[1][2], timeline.spans[1][1]);
  EXPECT_EQ(report(schedule, timeline).ranks[1].busy, 2 + 3 + 4);
}

TEST(Simulator, AWaitingCycleIsNamed) {
  Schedule schedule = by_hand(0);
  std::swap(schedule.programs[0][1], schedule.programs[0][2]);  // rank 0: BW0 before F1
  std::swap(schedule.programs[1][1], schedule.programs[1][2]);  // rank 1: F1 before BW0
  try {
    simulate(schedule);
    FAIL() << "no error";
  } catch (const UserError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("rank 0 at 1 (BW 0.0)"), std::string::npos) << message;
    EXPECT_NE(message.find("rank 1 at 1 (F 1.1)"), std::string::npos) << message;
  }
}

TEST(Simulator, AMissingInstructionIsNamed) {
  Schedule schedule = by_hand(0);
  schedule.programs[0].erase(schedule.programs[0].begin() + 1);
  try {
    simulate(schedule);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("F 0.1, which is not in rank 0's program"),
              std::string::npos)
        << error.what();
  }
}

TEST(Simulator, InstructionsThatNoSegmentHasAreErrors) {
  for (const Instruction& wrong : {compute(Op::forward, 7, 0), compute(Op::forward, 0, 9),
                                   compute(Op::forward, 1, 0), compute(Op::backward, 0, 0, 3)}) {
    Schedule schedule = by_hand(0);
    schedule.programs[0][0] = wrong;
    EXPECT_THROW(simulate(schedule), UserError) << to_text(wrong);
  }
  Schedule schedule = by_hand(0);
  schedule.programs.pop_back();
  EXPECT_THROW(simulate(schedule), UserError);
}

TEST(Simulator, GradientsWaitForTheInteractionOfAllBranches) {
  Schedule schedule;
  schedule.graph.ranks = 2;
  schedule.graph.micro_batches = 2;
  schedule.graph.latency = 1;
  for (int i = 0; i < 2; ++i) {
    Segment segment;
    segment.rank = i;
    segment.forward = 2 + 3 * i;
    schedule.graph.segments.push_back(segment);
  }
  schedule.graph.interactions.push_back({"gather", {0, 1}, 2, 4});
  normalise(schedule.graph);
  for (const SegmentId i : schedule.graph.segments.ids()) {
    Instruction interact = compute(Op::interact, i, 0);
    interact.edge = 0;
    schedule.programs.push_back({compute(Op::forward, i, 0), compute(Op::forward, i, 1), interact,
                                 compute(Op::backward, i, 0), compute(Op::backward, i, 1)});
  }
  const Timeline timeline = simulate(schedule);
  EXPECT_EQ(timeline.spans[0][3], (TimeSpan{15, 17}));  // 10 + latency 1 + cost 4
  EXPECT_EQ(timeline.spans[1][4], (TimeSpan{17, 19}));
}

TEST(LowerBound, IsTheSlowestStagesHeadAndWork) {
  StageCosts costs = uniform_costs(8, 20, 20, 10, 2);
  for (int r = 1; r < 8; r += 2) {
    costs.forward[r] = costs.input_gradient[r] = 10;
    costs.weight_gradient[r] = 5;
  }
  EXPECT_EQ(lower_bound(chain_graph(8, 16, 1, ChainPlacement::looped, costs)), 902);
  EXPECT_EQ(
      lower_bound(chain_graph(2, 1, 1, ChainPlacement::looped, uniform_costs(2, 2, 3, 1, 0.5))),
      2 + 0.5 + 2 + 3 + 0.5 + 3 + 1);
}

}  // namespace
}  // namespace heteroperf
