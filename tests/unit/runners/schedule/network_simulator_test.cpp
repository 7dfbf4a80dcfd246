#include "runners/schedule/network_simulator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "metrics/error.hpp"
#include "runners/schedule/lowering.hpp"
#include "runners/schedule/message_index.hpp"
#include "runners/schedule/placement.hpp"
#include "runners/schedule/report.hpp"
#include "runners/schedule/task_table.hpp"
#include "tests/unit/runners/schedule/network_reference.hpp"
#include "tests/unit/runners/schedule/random_schedule.hpp"

namespace heteroperf {
namespace {

/// name_ends() gives it its segment.
Instruction act(Op op, int edge, int micro_batch, int peer, int group = -1) {
  Instruction i = compute(op, -1, micro_batch);
  i.edge = edge;
  i.peer = peer;
  i.group = group;
  return i;
}

Instruction plain(Op op, int segment = -1) {
  Instruction i;
  i.op = op;
  i.segment = segment;
  return i;
}

Segment on_rank(int rank, double forward) {
  Segment segment;
  segment.rank = rank;
  segment.forward = forward;
  return segment;
}

void name_ends(Schedule& schedule) {
  for (std::vector<Instruction>& program : schedule.programs) {
    for (Instruction& i : program) {
      if (!is_message(i.op) || i.edge >= static_cast<int>(schedule.graph.edges.size())) continue;
      const Edge& edge = schedule.graph.edges[i.edge];
      i.segment = is_send(i.op) == carries_gradient(i.op) ? edge.to : edge.from;
    }
  }
}

/// Segments with a forward cost each, on ranks 0, 1, …; 6 bytes on every edge, latency 1.
Schedule forwards(const std::vector<double>& costs, const std::vector<std::pair<int, int>>& edges,
                  int micro_batches, std::vector<std::vector<Instruction>> programs) {
  Schedule schedule;
  schedule.level = ScheduleLevel::lowered;
  PipelineGraph& graph = schedule.graph;
  graph.ranks = static_cast<int>(costs.size());
  graph.micro_batches = micro_batches;
  graph.latency = 1;
  for (const double cost : costs) {
    graph.segments.push_back(on_rank(static_cast<int>(graph.segments.size()), cost));
  }
  for (const auto& [from, to] : edges) graph.edges.push_back({from, to, 6, true});
  normalise(graph);
  schedule.programs = std::move(programs);
  name_ends(schedule);
  return schedule;
}

SimulationOptions options(NetworkModel model, double bandwidth) {
  SimulationOptions result;
  result.model = model;
  result.network.bandwidth = bandwidth;
  return result;
}

SimulationOptions links(double bandwidth) { return options(NetworkModel::links, bandwidth); }

/// Rank 0 makes `count` micro-batches at 1 each and sends them, rank 1 takes 2 each.
Schedule stream(int count) {
  std::vector<std::vector<Instruction>> programs(2);
  for (int k = 0; k < count; ++k) {
    programs[0].push_back(compute(Op::forward, 0, k));
    programs[0].push_back(act(Op::send_act, 0, k, 1));
    programs[1].push_back(act(Op::recv_act, 0, k, 0));
    programs[1].push_back(compute(Op::forward, 1, k));
  }
  return forwards({1, 2}, {{0, 1}}, count, programs);
}

std::vector<TimeSpan> transfers(const Timeline& timeline) {
  std::vector<TimeSpan> spans;
  for (const Timeline::Transfer& t : timeline.transfers) spans.push_back({t.start, t.end});
  return spans;
}

std::string error_of(const Schedule& schedule, const SimulationOptions& how) {
  try {
    simulate(schedule, how);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

using Spans = std::vector<TimeSpan>;

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
  for (int rank = 0; rank < 3; ++rank) {
    Instruction interact = compute(Op::interact, rank, 0);
    interact.edge = 0;
    programs[rank] = {compute(Op::forward, rank, 0), interact, compute(Op::backward, rank, 0)};
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

TEST(NetworkSimulator, NamesEverythingThatIsWrongWithANetwork) {
  SimulationOptions how = links(-1);
  how.network.capacity = 0;
  how.network.card = {0, 1, 2};
  how.network.node = {0};
  how.network.compute_slow_down = 0.5;
  how.network.card_bandwidth = std::nan("");
  how.network.reduction_time = -2;
  how.network.step_time = -3;
  const std::string error = error_of(stream(1), how);
  for (const char* key :
       {"bandwidth -1", "capacity 0", "card names 3", "node names 1", "compute_slow_down 0.5",
        "card_bandwidth nan", "reduction_time -2", "step_time -3"}) {
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

// --- Properties over random graphs, orders and networks ---

using Random = std::mt19937_64;

/// Random segments on random ranks with random edges; whole-number costs.
PipelineGraph whole_cost_graph(Random& random) {
  PipelineGraph graph;
  graph.ranks = pick(random, 2, 5);
  graph.micro_batches = pick(random, 1, 6);
  graph.latency = pick(random, 0, 3);
  const int segments = pick(random, 2, 8);
  for (int i = 0; i < segments; ++i) {
    Segment segment = on_rank(pick(random, 0, graph.ranks - 1), pick(random, 1, 5));
    segment.input_gradient = pick(random, 1, 5);
    segment.weight_gradient = pick(random, 0, 5);
    graph.segments.push_back(segment);
    for (int from = 0; from < i; ++from) {
      if (pick(random, 0, 2) > 0 && from + 1 != i) continue;
      graph.edges.push_back(
          {from, i, static_cast<double>(pick(random, 1, 6)), pick(random, 0, 4) > 0});
    }
  }
  normalise(graph);
  return graph;
}

/// `slot`: of this end.
Instruction message_of(const TaskTable& tasks, Op op, int edge, std::int32_t slot, int peer) {
  Instruction i = act(op, edge, tasks.micro_batch_of(slot), peer);
  i.segment = tasks.segment_of(slot);
  return i;
}

/// A random order that can run, each value sent where it is made, received where it is used.
class RandomPrograms {
 public:
  RandomPrograms(const PipelineGraph& graph, Random& random) : tasks_(graph), random_(random) {
    schedule_.graph = graph;
    schedule_.level = ScheduleLevel::lowered;
    schedule_.programs.resize(graph.ranks);
    done_.assign(2 * tasks_.slots(), false);
  }

  Schedule make() {
    std::vector<std::int32_t> left(done_.size());
    for (std::size_t i = 0; i < left.size(); ++i) left[i] = static_cast<std::int32_t>(i);
    while (!left.empty()) {
      std::swap(left[pick(random_, 0, static_cast<int>(left.size()) - 1)], left.back());
      if (!may_run(left.back())) continue;
      run(left.back());
      left.pop_back();
    }
    return std::move(schedule_);
  }

 private:
  template <class Visit>
  void for_each_input(std::int32_t task, Visit visit) const {
    const std::int32_t slot = task / 2;
    if (task % 2 == 0) {
      tasks_.for_each_forward_input(slot, [&](std::int32_t s, int e) { visit(2 * s, e); });
    } else {
      visit(2 * slot, -1);
      tasks_.for_each_gradient_input(slot, [&](std::int32_t s, int e) { visit(2 * s + 1, e); });
    }
  }

  bool may_run(std::int32_t task) const {
    bool may = true;
    for_each_input(task, [&](std::int32_t input, int) { may = may && done_[input]; });
    return may;
  }

  int rank_of(std::int32_t task) const {
    return schedule_.graph.segments[tasks_.segment_of(task / 2)].rank;
  }

  void run(std::int32_t task) {
    const std::int32_t slot = task / 2;
    const int segment = tasks_.segment_of(slot), rank = rank_of(task);
    std::vector<Instruction>& program = schedule_.programs[rank];
    const bool forward = task % 2 == 0;
    for_each_input(task, [&](std::int32_t input, int edge) {
      if (edge < 0 || rank_of(input) == rank) return;
      program.push_back(
          message_of(tasks_, forward ? Op::recv_act : Op::recv_grad, edge, slot, rank_of(input)));
    });
    program.push_back(
        compute(forward ? Op::forward : Op::backward, segment, tasks_.micro_batch_of(slot)));
    for (const int edge : forward ? tasks_.edges_out(segment) : tasks_.edges_in(segment)) {
      const Edge& e = schedule_.graph.edges[edge];
      const int peer = schedule_.graph.segments[forward ? e.to : e.from].rank;
      if (peer == rank || !(forward || e.gradient)) continue;
      program.push_back(
          message_of(tasks_, forward ? Op::send_act : Op::send_grad, edge, slot, peer));
    }
    done_[task] = true;
  }

  Schedule schedule_;
  TaskTable tasks_;
  Random& random_;
  std::vector<bool> done_;
};

/// Neighbouring messages join groups, so that more programs survive rendezvous.
void group_neighbours(Schedule& schedule) {
  int group = 0;
  for (std::vector<Instruction>& program : schedule.programs) {
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (is_compute(program[i].op)) {
        ++group;
      } else {
        program[i].group = group;
      }
    }
  }
}

Network random_network(Random& random, int ranks) {
  Network network;
  network.bandwidth = 1.0 / pick(random, 1, 3);  // whole transfer times
  network.capacity = pick(random, 1, 3);
  network.full_duplex = pick(random, 0, 1) == 1;
  if (pick(random, 0, 1) == 1) network.card_bandwidth = 1.0 / pick(random, 1, 4);
  for (int rank = 0; rank < ranks; ++rank) {
    network.card.push_back(pick(random, 0, ranks / 2));
    network.node.push_back(pick(random, 0, 1 + ranks / 2));
  }
  return network;
}

Spans compute_spans(const Schedule& schedule, const Timeline& timeline, int rank) {
  Spans spans;
  for (std::size_t i = 0; i < schedule.programs[rank].size(); ++i) {
    if (is_compute(schedule.programs[rank][i].op)) spans.push_back(timeline.spans[rank][i]);
  }
  return spans;
}

TEST(NetworkSimulatorProperty, WithoutBandwidthLimitsLinksAreTheLatencyModel) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const PipelineGraph graph = whole_cost_graph(random);
    const Schedule schedule = RandomPrograms(graph, random).make();
    const Schedule bare = compute_only(schedule);
    SimulationOptions how = links(0);
    how.network.capacity = pick(random, 1, 2);
    how.network.compute_slow_down = pick(random, 1, 2);
    const Timeline network = simulate(schedule, how), latency = simulate(bare);
    for (int rank = 0; rank < graph.ranks; ++rank) {
      ASSERT_EQ(compute_spans(schedule, network, rank), latency.spans[rank]) << round;
    }
  }
}

TEST(NetworkSimulatorProperty, AgreesWithACountingClock) {
  Random random(2);
  int hung = 0, ended = 0;
  for (int round = 0; round < 1500; ++round) {
    Schedule schedule = RandomPrograms(whole_cost_graph(random), random).make();
    if (pick(random, 0, 2) > 0) group_neighbours(schedule);
    SimulationOptions how;
    how.model = round % 2 == 0 ? NetworkModel::links : NetworkModel::rendezvous;
    how.network = random_network(random, schedule.graph.ranks);
    const std::optional<Timeline> expected = count_ticks(schedule, how);
    if (!expected) {
      EXPECT_NE(error_of(schedule, how).find("hangs"), std::string::npos) << round;
      ++hung;
      continue;
    }
    ++ended;
    const Timeline timeline = simulate(schedule, how);
    ASSERT_EQ(transfers(timeline), transfers(*expected)) << round;
    for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
      ASSERT_EQ(compute_spans(schedule, timeline, rank), compute_spans(schedule, *expected, rank))
          << round;
    }
  }
  EXPECT_GT(hung, 100);
  EXPECT_GT(ended, 800);
}

/// How long [start, end] overlaps the transfers from or to a rank.
double overlap(const Schedule& schedule, const Timeline& timeline, int rank, TimeSpan span) {
  Spans busy;
  for (const Timeline::Transfer& t : timeline.transfers) {
    const Instruction& send = schedule.programs[t.rank][t.index];
    if (t.rank != rank && send.peer != rank) continue;
    busy.push_back({std::max(t.start, span.start), std::min(t.end, span.end)});
  }
  std::sort(busy.begin(), busy.end(),
            [](const TimeSpan& a, const TimeSpan& b) { return a.start < b.start; });
  double sum = 0, covered = span.start;
  for (const TimeSpan& s : busy) {
    sum += std::max(0.0, s.end - std::max(s.start, covered));
    covered = std::max(covered, s.end);
  }
  return sum;
}

double cost_of(const PipelineGraph& graph, const Instruction& i) {
  const Segment& s = graph.segments[i.segment];
  return i.op == Op::forward ? s.forward : s.input_gradient + s.weight_gradient;
}

TEST(NetworkSimulatorProperty, SlowedComputeDoesItsWork) {
  Random random(3);
  double slowed = 0;
  for (int round = 0; round < 200; ++round) {
    const Schedule schedule = RandomPrograms(whole_cost_graph(random), random).make();
    SimulationOptions how = links(1);
    how.network = random_network(random, schedule.graph.ranks);
    how.network.compute_slow_down = 1 + 0.25 * pick(random, 1, 8);
    const Timeline timeline = simulate(schedule, how);
    for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
      double time = 0;
      for (std::size_t i = 0; i < schedule.programs[rank].size(); ++i) {
        const TimeSpan span = timeline.spans[rank][i];
        ASSERT_EQ(span.start, time);  // the spans of a rank are its time, without gaps
        time = span.end;
        if (!is_compute(schedule.programs[rank][i].op)) continue;
        const double slow = overlap(schedule, timeline, rank, span);
        const double work = span.end - span.start - slow + slow / how.network.compute_slow_down;
        ASSERT_NEAR(work, cost_of(schedule.graph, schedule.programs[rank][i]), 1e-9) << round;
        slowed += slow;
      }
    }
  }
  EXPECT_GT(slowed, 1000);
}

/// Whether nothing ends later in `a` than in `b`.
void expect_not_later(const Timeline& a, const Timeline& b, const char* what) {
  for (std::size_t rank = 0; rank < a.spans.size(); ++rank) {
    for (std::size_t i = 0; i < a.spans[rank].size(); ++i) {
      ASSERT_LE(a.spans[rank][i].end, b.spans[rank][i].end + 1e-9) << what;
    }
  }
}

TEST(NetworkSimulatorProperty, ABetterNetworkNeverDelaysFullDuplexLinks) {
  Random random(4);
  for (int round = 0; round < 300; ++round) {
    const Schedule schedule = RandomPrograms(whole_cost_graph(random), random).make();
    const SimulationOptions how = links(0.1 * pick(random, 1, 20));
    const Timeline base = simulate(schedule, how);
    SimulationOptions faster = how, wider = how;
    faster.network.bandwidth *= 1 + 0.1 * pick(random, 1, 20);
    wider.network.capacity = 2;
    Schedule nearer = schedule;
    nearer.graph.latency *= 0.1 * pick(random, 0, 10);
    expect_not_later(simulate(schedule, faster), base, "bandwidth");
    expect_not_later(simulate(schedule, wider), base, "capacity");
    expect_not_later(simulate(nearer, how), base, "latency under links");
    expect_not_later(simulate(compute_only(nearer)), simulate(compute_only(schedule)), "latency");
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

TEST(NetworkSimulatorProperty, CausesLeadBackToTheStart) {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    Schedule schedule = RandomPrograms(whole_cost_graph(random), random).make();
    group_neighbours(schedule);
    SimulationOptions how = links(1);
    how.network = random_network(random, schedule.graph.ranks);
    if (round % 2 == 1) how.model = NetworkModel::rendezvous;
    if (error_of(schedule, how) != "") continue;
    const ScheduleReport r = report(schedule, simulate(schedule, how));
    ASSERT_FALSE(r.critical_path.empty());
    EXPECT_EQ(r.critical_path.front().span.start, 0);
    double last_compute_end = 0;
    for (std::size_t i = 1; i < r.critical_path.size(); ++i) {
      const PathStep &a = r.critical_path[i - 1], &b = r.critical_path[i];
      if (is_compute(schedule.programs[b.rank][b.index].op)) {
        ASSERT_EQ(a.rank, b.rank) << round;
        ASSERT_EQ(a.span.end, b.span.start) << round;
        ASSERT_LE(last_compute_end, b.span.start) << round;
      }
      if (is_compute(schedule.programs[a.rank][a.index].op)) last_compute_end = a.span.end;
    }
    for (const RankTimes& rank : r.ranks) {
      ASSERT_NEAR(rank.idle, rank.warm_up + rank.dependency + rank.communication + rank.imbalance,
                  1e-9);
    }
  }
}

/// Lowered orders, of computes alone until then, run under every model.
TEST(NetworkSimulatorProperty, LoweredSchedulesNeverHangNorBeatTheLatencyModel) {
  Random random(6);
  for (int round = 0; round < 300; ++round) {
    const PipelineGraph graph = whole_cost_graph(random);
    const Schedule order = compute_only(RandomPrograms(graph, random).make());
    const Schedule schedule = lower(order);
    const Timeline free = simulate(order);
    for (const NetworkModel model : {NetworkModel::links, NetworkModel::rendezvous}) {
      for (const double bandwidth : {0.0, 0.5}) {
        const Timeline timeline = simulate(schedule, options(model, bandwidth));
        for (int rank = 0; rank < graph.ranks; ++rank) {
          const Spans spans = compute_spans(schedule, timeline, rank);
          ASSERT_EQ(spans.size(), free.spans[rank].size());
          for (std::size_t i = 0; i < spans.size(); ++i) {
            ASSERT_GE(spans[i].start, free.spans[rank][i].start) << round;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace heteroperf
