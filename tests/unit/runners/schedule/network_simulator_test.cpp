#include "runners/schedule/simulate/simulator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "metrics/base/error.hpp"
#include "runners/schedule/ir/graph_index.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/lower/lowering.hpp"
#include "runners/schedule/simulate/report.hpp"
#include "tests/unit/runners/schedule/network_programs.hpp"

namespace heteroperf {
namespace {

TEST(NetworkSimulator, AMessageTakesItsBytesAndTheLatency) {
  const Timeline timeline = simulate(stream(1), links(2));
  EXPECT_EQ(timeline.spans[0], (Spans{{0, 1}, {1, 1}}));
  EXPECT_EQ(timeline.spans[1], (Spans{{0, 5}, {5, 7}}));  // 1 + 6/2 + latency 1
  EXPECT_EQ(timeline.under_way[1][0], 1);
  ASSERT_EQ(timeline.transfers.size(), 1u);
  EXPECT_EQ(timeline.transfers[0].rank, 0);
  EXPECT_EQ(timeline.transfers[0].index, 1);
  EXPECT_EQ(timeline.transfers[0].issued, 1);
  EXPECT_EQ(transfers(timeline), (Spans{{1, 4}}));
}

TEST(NetworkSimulator, ALinkCarriesAsManyAsItsCapacity) {
  SimulationOptions how = links(2);
  EXPECT_EQ(transfers(simulate(stream(3), how)), (Spans{{1, 4}, {4, 7}, {7, 10}}));
  how.network.capacity = 2;
  EXPECT_EQ(transfers(simulate(stream(3), how)), (Spans{{1, 4}, {2, 5}, {4, 7}}));
  how.network.capacity = 3;
  EXPECT_EQ(transfers(simulate(stream(3), how)), (Spans{{1, 4}, {2, 5}, {3, 6}}));
}

TEST(NetworkSimulator, PartsShareTheBytes) {
  Schedule schedule = stream(1);
  schedule.graph.parts = 2;
  for (std::vector<Instruction>& program : schedule.programs) {
    const std::vector<Instruction> first = program;
    for (Instruction i : first) {
      i.part = 1;
      program.push_back(i);
    }
  }
  EXPECT_EQ(transfers(simulate(schedule, links(2))), (Spans{{0.5, 2}, {2, 3.5}}));
}

/// Segment 0 on rank 0 feeds 1 on rank 1; 2 on rank 1 feeds 3 on rank 0.
Schedule crossing(double first, double second, int group) {
  Schedule schedule = forwards({first, 1, second, 1}, {{0, 1}, {2, 3}}, 1,
                               {{compute(Op::forward, 0, 0), act(Op::send_act, 0, 0, 1, group),
                                 act(Op::recv_act, 1, 0, 1, group), compute(Op::forward, 3, 0)},
                                {compute(Op::forward, 2, 0), act(Op::send_act, 1, 0, 0, group),
                                 act(Op::recv_act, 0, 0, 0, group), compute(Op::forward, 1, 0)}});
  schedule.graph.ranks = 2;
  schedule.graph.segments[2].rank = 1;
  schedule.graph.segments[3].rank = 0;
  return schedule;
}

TEST(NetworkSimulator, HalfDuplexSharesTheLink) {
  SimulationOptions how = links(2);
  EXPECT_EQ(transfers(simulate(crossing(1, 2, -1), how)), (Spans{{1, 4}, {2, 5}}));
  how.network.full_duplex = false;
  EXPECT_EQ(transfers(simulate(crossing(1, 2, -1), how)), (Spans{{1, 4}, {4, 7}}));
  EXPECT_EQ(transfers(simulate(crossing(3, 2, -1), how)), (Spans{{5, 8}, {2, 5}}));
  EXPECT_EQ(transfers(simulate(crossing(2, 2, -1), how)), (Spans{{2, 5}, {5, 8}}));  // by rank
}

/// Ranks 0 and 1 each send to rank 2 and 3.
Schedule two_senders(double first, double second) {
  return forwards({first, second, 1, 1}, {{0, 2}, {1, 3}}, 1,
                  {{compute(Op::forward, 0, 0), act(Op::send_act, 0, 0, 2)},
                   {compute(Op::forward, 1, 0), act(Op::send_act, 1, 0, 3)},
                   {act(Op::recv_act, 0, 0, 0), compute(Op::forward, 2, 0)},
                   {act(Op::recv_act, 1, 0, 1), compute(Op::forward, 3, 0)}});
}

TEST(NetworkSimulator, ACardCarriesOneMessageAtATime) {
  SimulationOptions how = links(6);
  how.network.card = {7, 7, 2, 3};
  EXPECT_EQ(transfers(simulate(two_senders(1, 1), how)), (Spans{{1, 2}, {1, 2}}));  // no limit
  how.network.card_bandwidth = 2;  // slower than the link
  EXPECT_EQ(transfers(simulate(two_senders(1, 1), how)), (Spans{{1, 4}, {4, 7}}));
  EXPECT_EQ(transfers(simulate(two_senders(3, 2), how)), (Spans{{5, 8}, {2, 5}}));
  how.network.card_bandwidth = 60;  // faster
  EXPECT_EQ(transfers(simulate(two_senders(1, 1), how)), (Spans{{1, 2}, {2, 3}}));
  how.network.card = {0, 1, 2, 2};  // the receivers share one
  EXPECT_EQ(transfers(simulate(two_senders(1, 1), how)), (Spans{{1, 2}, {2, 3}}));
  how.network.card = {};
  EXPECT_EQ(transfers(simulate(two_senders(1, 1), how)), (Spans{{1, 2}, {1, 2}}));
}

TEST(NetworkSimulator, MessagesWithinANodePassNoCard) {
  SimulationOptions how = links(6);
  how.network.card = {0, 0, 0, 0};
  how.network.card_bandwidth = 2;
  how.network.node = {5, 5, 5, 5};
  EXPECT_EQ(transfers(simulate(two_senders(1, 1), how)), (Spans{{1, 2}, {1, 2}}));
  how.network.node = {5, 5, 5, 6};  // 1 to 3 leaves it
  EXPECT_EQ(transfers(simulate(two_senders(1, 1), how)), (Spans{{1, 2}, {1, 4}}));
}

TEST(NetworkSimulator, WhoWaitsForAnotherCardLetsLaterOnesPass) {
  // Rank 0 sends to 2, then rank 1 to 2 (its card is taken), then rank 1 to 3.
  Schedule schedule = forwards(
      {1, 2, 1, 1}, {{0, 2}, {1, 2}, {1, 3}}, 1,
      {{compute(Op::forward, 0, 0), act(Op::send_act, 0, 0, 2)},
       {compute(Op::forward, 1, 0), act(Op::send_act, 1, 0, 2), act(Op::send_act, 2, 0, 3)},
       {act(Op::recv_act, 0, 0, 0), act(Op::recv_act, 1, 0, 1), compute(Op::forward, 2, 0)},
       {act(Op::recv_act, 2, 0, 1), compute(Op::forward, 3, 0)}});
  SimulationOptions how = links(2);
  how.network.card_bandwidth = 2;
  EXPECT_EQ(transfers(simulate(schedule, how)), (Spans{{1, 4}, {5, 8}, {2, 5}}));
}

TEST(NetworkSimulator, ARendezvousBlocksTheSender) {
  Schedule schedule = stream(2);
  schedule.graph.segments[1].forward = 10;
  const Timeline timeline = simulate(schedule, options(NetworkModel::rendezvous, 2));
  // The second receive is reached at 5 + 10.
  EXPECT_EQ(timeline.spans[0], (Spans{{0, 1}, {1, 4}, {4, 5}, {5, 18}}));
  EXPECT_EQ(timeline.spans[1], (Spans{{0, 5}, {5, 15}, {15, 19}, {19, 29}}));
  EXPECT_EQ(timeline.under_way[0][3], 15);
  EXPECT_EQ(timeline.causes[0][3].rank, 1);
  EXPECT_EQ(timeline.causes[0][3].index, 2);
  EXPECT_EQ(simulate(schedule, links(2)).spans[0], (Spans{{0, 1}, {1, 1}, {1, 2}, {2, 2}}));
}

TEST(NetworkSimulator, CrossingSendsHangUnlessGroupedOrBuffered) {
  const SimulationOptions rendezvous = options(NetworkModel::rendezvous, 2);
  const std::string error = error_of(crossing(1, 2, -1), rendezvous);
  EXPECT_NE(error.find("rank 0, 1: SEND_ACT 0.0>1 waits for rank 1, 2: RECV_ACT 1.0<0"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("rank 1, 1: SEND_ACT 2.0>0 waits for rank 0, 2: RECV_ACT 3.0<1"),
            std::string::npos)
      << error;
  EXPECT_EQ(error_of(crossing(1, 2, -1), links(2)), "");
  // Grouped: posted at 1 and 2, both ways at once.
  const Timeline timeline = simulate(crossing(1, 2, 4), rendezvous);
  EXPECT_EQ(timeline.spans[0], (Spans{{0, 1}, {1, 5}, {5, 6}, {6, 7}}));
  EXPECT_EQ(timeline.spans[1], (Spans{{0, 2}, {2, 5}, {5, 6}, {6, 7}}));
  EXPECT_EQ(timeline.under_way[0][1], 2);
}

TEST(NetworkSimulator, AGroupIsIssuedTogetherAndWaitsForAll) {
  // Rank 2 receives from both; the sends of its group go out before the receives are there.
  Schedule schedule = forwards({1, 8, 1}, {{0, 2}, {1, 2}}, 1,
                               {{compute(Op::forward, 0, 0), act(Op::send_act, 0, 0, 2)},
                                {compute(Op::forward, 1, 0), act(Op::send_act, 1, 0, 2)},
                                {act(Op::recv_act, 0, 0, 0, 0), act(Op::recv_act, 1, 0, 1, 0),
                                 act(Op::send_grad, 0, 0, 0, 0), compute(Op::forward, 2, 0)}});
  schedule.programs[0].push_back(act(Op::recv_grad, 0, 0, 2));
  name_ends(schedule);
  const Timeline timeline = simulate(schedule, links(2));
  EXPECT_EQ(timeline.spans[2], (Spans{{0, 5}, {5, 12}, {0, 0}, {12, 13}}));
  EXPECT_EQ(timeline.spans[0][2], (TimeSpan{1, 4}));  // sent at 0, not at 12
}

TEST(NetworkSimulator, TransfersSlowComputeDown) {
  SimulationOptions how = links(2);
  how.network.compute_slow_down = 2;
  const Timeline timeline = simulate(stream(2), how);
  // The second forward of rank 0 and the transfer begin at 1: 2 at half speed. The next one is
  // issued at 3 and waits for the link until 4; rank 1 gets the first at 5, works slowly until 7.
  EXPECT_EQ(timeline.spans[0], (Spans{{0, 1}, {1, 1}, {1, 3}, {3, 3}}));
  EXPECT_EQ(transfers(timeline), (Spans{{1, 4}, {4, 7}}));
  EXPECT_EQ(timeline.spans[1], (Spans{{0, 5}, {5, 8}, {8, 8}, {8, 10}}));  // 2/2 + 1
}

TEST(NetworkSimulator, InteractionsBlockUntilAllMembersHaveCome) {
  std::vector<std::vector<Instruction>> programs(3);
  for (const SegmentId s : first_ids<SegmentId>(3)) {
    Instruction interact = compute(Op::interact, s, 0);
    interact.edge = 0;
    programs[s.index()] = {compute(Op::forward, s, 0), interact, compute(Op::backward, s, 0)};
  }
  Schedule schedule = forwards({1, 2, 5}, {}, 1, programs);
  schedule.graph.interactions.push_back({"gather", {0, 1, 2}, 1, 4});
  const Timeline timeline = simulate(schedule, links(0));
  EXPECT_EQ(timeline.spans[0], (Spans{{0, 1}, {1, 11}, {11, 13}}));  // 5 + 2 rounds + 4
  EXPECT_EQ(timeline.spans[2], (Spans{{0, 5}, {5, 11}, {11, 13}}));
  EXPECT_EQ(timeline.under_way[0][1], 5);
  EXPECT_EQ(timeline.causes[0][1].rank, 2);
  EXPECT_EQ(timeline.causes[2][1].rank, 2);
  EXPECT_EQ(timeline.causes[2][1].index, 0);
}

TEST(NetworkSimulator, ReductionsJoinCopiesOfTheSameWeights) {
  Schedule schedule;
  schedule.level = ScheduleLevel::lowered;
  schedule.graph = bidirectional_graph(2, 2, uniform_costs(2, 1, 1, 1, 1));
  schedule.programs = {{compute(Op::forward, 0, 0), plain(Op::reduce_grad, 0),
                        plain(Op::reduce_grad, 3), plain(Op::opt_step)},
                       {plain(Op::reduce_grad, 2), plain(Op::reduce_grad, 1), plain(Op::opt_step)}};
  SimulationOptions how = links(0);
  how.network.reduction_time = 3;
  how.network.step_time = 0.5;
  const Timeline timeline = simulate(schedule, how);
  EXPECT_EQ(timeline.spans[0], (Spans{{0, 1}, {1, 5}, {5, 9}, {9, 9.5}}));
  EXPECT_EQ(timeline.spans[1], (Spans{{0, 5}, {5, 9}, {9, 9.5}}));

  std::swap(schedule.programs[1][0], schedule.programs[1][1]);
  const std::string error = error_of(schedule, how);
  EXPECT_NE(error.find("rank 0, 1: REDUCE_GRAD 0 waits for rank 1, 1: REDUCE_GRAD 2"),
            std::string::npos)
      << error;

  // Both copies on one rank: nobody to wait for.
  for (Segment& segment : schedule.graph.segments) segment.rank = 0;
  schedule.graph.edges.clear();
  schedule.programs = {{plain(Op::reduce_grad, 0), plain(Op::reduce_grad, 2)}, {}};
  EXPECT_EQ(simulate(schedule, how).spans[0], (Spans{{0, 0}, {0, 3}}));
}

TEST(NetworkSimulator, TiedWeightsReduceOverTheirSet) {
  Schedule schedule = forwards({1, 2, 3}, {}, 1,
                               {{compute(Op::forward, 0, 0), plain(Op::reduce_tied, 0)},
                                {compute(Op::forward, 1, 0)},
                                {compute(Op::forward, 2, 0), plain(Op::reduce_tied, 2)}});
  schedule.graph.tied = {{0, 2}};
  EXPECT_EQ(simulate(schedule, links(0)).spans[0], (Spans{{0, 1}, {1, 4}}));
  schedule.programs[1].push_back(plain(Op::reduce_tied, 1));
  EXPECT_NE(error_of(schedule, links(0)).find("rank 1, 1: REDUCE_TIED 1"), std::string::npos);
}

TEST(NetworkSimulator, FusedPairsAndSecondForwardsTakeTheirCosts) {
  Schedule schedule = stream(2);
  schedule.graph.fused_cost_factor = 0.75;
  std::vector<Instruction>& program = schedule.programs[1];
  program = {program[0], program[1],
             program[2], compute(Op::backward, 1, 0),
             program[3], compute(Op::recompute, 1, 1)};
  program[3].fused_with_next = true;
  const Timeline timeline = simulate(schedule, links(0));
  // Arrivals 2 and 3; (1 + 1 + 2) · 0.75.
  EXPECT_EQ(timeline.spans[1], (Spans{{0, 2}, {2, 4}, {4, 4}, {4, 7}, {4, 7}, {7, 9}}));
}

TEST(NetworkSimulator, MicroBatchesAndRanksHaveTheirOwnCosts) {
  Schedule schedule = stream(2);
  schedule.graph.micro_batch_scale = {0.5, 1.5};
  const Timeline timeline = simulate(schedule, links(2));
  EXPECT_EQ(timeline.spans[0], (Spans{{0, 0.5}, {0.5, 0.5}, {0.5, 2}, {2, 2}}));
  EXPECT_EQ(timeline.spans[1], (Spans{{0, 4.5}, {4.5, 5.5}, {5.5, 7.5}, {7.5, 10.5}}));
}

TEST(NetworkSimulator, WaitingReceivesHangInEveryModel) {
  Schedule schedule = crossing(1, 2, -1);
  for (std::vector<Instruction>& program : schedule.programs)
    std::rotate(program.begin(), program.begin() + 2, program.begin() + 3);
  for (const NetworkModel model : {NetworkModel::links, NetworkModel::rendezvous}) {
    for (const double bandwidth : {0.0, 2.0}) {
      const std::string error = error_of(schedule, options(model, bandwidth));
      EXPECT_NE(error.find("rank 0, 0: RECV_ACT 3.0<1 waits for rank 1, 2: SEND_ACT 2.0>0"),
                std::string::npos)
          << error;
      EXPECT_NE(error.find("rank 1, 0: RECV_ACT 1.0<0 waits for rank 0, 2"), std::string::npos)
          << error;
    }
  }
}

TEST(NetworkSimulator, RefusesProgramsThatDoNotFit) {
  Schedule unreceived = stream(2);
  unreceived.programs[1].erase(unreceived.programs[1].begin() + 2);
  EXPECT_NE(error_of(unreceived, links(2)).find("rank 0, 3: SEND_ACT 0.1>1 (nobody receives it)"),
            std::string::npos)
      << error_of(unreceived, links(2));
  Schedule unsent = stream(2);
  unsent.programs[0].pop_back();
  EXPECT_NE(error_of(unsent, links(2)).find("rank 1, 2: RECV_ACT 1.1<0 (nobody sends it)"),
            std::string::npos)
      << error_of(unsent, links(2));
  for (const auto& spoil : std::vector<void (*)(Instruction&)>{
           [](Instruction& i) { i.peer = 0; }, [](Instruction& i) { i.edge = 3; },
           [](Instruction& i) { i.edge = -1; }, [](Instruction& i) { i.micro_batch = 5; },
           [](Instruction& i) { i.part = 1; }, [](Instruction& i) { i.op = Op::send_grad; },
           [](Instruction& i) { i.micro_batch = 0; }}) {
    Schedule wrong = stream(2);
    spoil(wrong.programs[0][3]);
    EXPECT_NE(error_of(wrong, links(2)).find("rank 0, 3: SEND_"), std::string::npos);
  }
  Schedule elsewhere = stream(2);
  elsewhere.programs[0][0].segment = 1;
  EXPECT_NE(error_of(elsewhere, links(2)).find("rank 0, 0: F 1.0"), std::string::npos);
  Schedule bare = stream(1);
  bare.level = ScheduleLevel::compute;
  EXPECT_NE(error_of(bare, links(2)).find("model links on a compute-only schedule"),
            std::string::npos);
}

TEST(NetworkSimulator, NamesWhatANetworkHasForOtherRanks) {
  SimulationOptions how = links(1);
  how.network.card = {0, 1, 2};
  how.network.node = {0};
  const std::string error = error_of(stream(1), how);
  for (const char* key : {"card names 3", "node names 1"}) {
    EXPECT_NE(error.find(key), std::string::npos) << key << " in " << error;
  }
}

TEST(NetworkSimulator, IdleTimeIsSplitBetweenOthersWorkAndTheirMessages) {
  Schedule late = stream(2);
  late.graph.micro_batch_scale = {1, 8};  // rank 1: [5, 7]; the second is issued at 9, there at 13
  ScheduleReport r = report(late, simulate(late, links(2)));
  EXPECT_EQ(r.ranks[1].warm_up, 5);
  EXPECT_EQ(r.ranks[1].dependency, 2);     // [7, 9]
  EXPECT_EQ(r.ranks[1].communication, 4);  // [9, 13]
  EXPECT_EQ(r.makespan, 13 + 16);
  EXPECT_EQ(r.ranks[0].imbalance, r.makespan - 9);
  for (const NetworkModel model : {NetworkModel::links, NetworkModel::rendezvous}) {
    r = report(late, simulate(late, options(model, 2)));
    for (const RankTimes& rank : r.ranks) {
      EXPECT_EQ(rank.idle, rank.warm_up + rank.dependency + rank.communication + rank.imbalance);
    }
  }
}

TEST(NetworkSimulator, ANearerRankMayTakeASharedLinkFirst) {
  // Rank 1 needs rank 2's value to make the one it sends over the link it shares with rank 0.
  Schedule schedule = forwards(
      {3.5, 1, 1}, {{0, 1}, {2, 1}}, 1,
      {{compute(Op::forward, 0, 0), act(Op::send_act, 0, 0, 1), act(Op::recv_act, 2, 0, 1)},
       {act(Op::recv_act, 1, 0, 2), compute(Op::forward, 1, 0), act(Op::send_act, 2, 0, 0),
        act(Op::recv_act, 0, 0, 0), compute(Op::backward, 1, 0)},
       {compute(Op::forward, 2, 0), act(Op::send_act, 1, 0, 1)}});
  Segment last = on_rank(0, 1);
  last.weights = 9;
  last.micro_batches = 1;
  schedule.graph.segments.push_back(last);
  schedule.graph.edges.push_back({1, 3, 6, true});
  name_ends(schedule);
  SimulationOptions how = links(6);
  how.network.full_duplex = false;
  const auto backward_end = [&](double latency) {
    schedule.graph.latency = latency;
    return simulate(schedule, how).spans[1][4].end;
  };
  EXPECT_EQ(backward_end(1), 3.5 + 1 + 1 + 2);            // rank 1 sends at 4 only,
  EXPECT_EQ(backward_end(0.375), 4.375 + 1 + 0.375 + 2);  // here at 3.375, until 4.375
}

}  // namespace
}  // namespace heteroperf
