#include "runners/schedule/simulate/simulator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "metrics/base/error.hpp"
#include "runners/schedule/ir/graph_index.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/lower/lowering.hpp"
#include "runners/schedule/simulate/report.hpp"
#include "tests/unit/runners/schedule/network_programs.hpp"
#include "tests/unit/runners/schedule/network_reference.hpp"
#include "tests/unit/runners/schedule/random_schedule.hpp"

namespace heteroperf {
namespace {

using Random = std::mt19937_64;

/// Random segments on random ranks with random edges; whole-number costs.
PipelineGraph whole_cost_graph(Random& random) {
  PipelineGraph graph;
  graph.ranks = pick(random, 2, 5);
  graph.micro_batches = pick(random, 1, 6);
  graph.latency = pick(random, 0, 3);
  const int segments = pick(random, 2, 8);
  for (const SegmentId i : first_ids<SegmentId>(segments)) {
    Segment segment = on_rank(pick(random, 0, graph.ranks - 1), pick(random, 1, 5));
    segment.input_gradient = pick(random, 1, 5);
    segment.weight_gradient = pick(random, 0, 5);
    graph.segments.push_back(segment);
    for (SegmentId from; from < i; ++from) {
      if (pick(random, 0, 2) > 0 && from + 1 != i) continue;
      graph.edges.push_back(
          {from, i, static_cast<double>(pick(random, 1, 6)), pick(random, 0, 4) > 0});
    }
  }
  normalise(graph);
  return graph;
}

/// `slot`: of this end.
Instruction message_of(const TaskTable& tasks, Op op, EdgeId edge, std::int32_t slot, int peer) {
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
      tasks_.for_each_forward_input(slot, [&](std::int32_t s, EdgeId e) { visit(2 * s, e); });
    } else {
      visit(2 * slot, -1);
      tasks_.for_each_gradient_input(slot, [&](std::int32_t s, EdgeId e) { visit(2 * s + 1, e); });
    }
  }

  bool may_run(std::int32_t task) const {
    bool may = true;
    for_each_input(task, [&](std::int32_t input, EdgeId) { may = may && done_[input]; });
    return may;
  }

  int rank_of(std::int32_t task) const {
    return schedule_.graph.segments[tasks_.segment_of(task / 2)].rank;
  }

  void run(std::int32_t task) {
    const std::int32_t slot = task / 2;
    const SegmentId segment = tasks_.segment_of(slot);
    const int rank = rank_of(task);
    std::vector<Instruction>& program = schedule_.programs[rank];
    const bool forward = task % 2 == 0;
    for_each_input(task, [&](std::int32_t input, EdgeId edge) {
      if (edge == EdgeId::none() || rank_of(input) == rank) return;
      program.push_back(
          message_of(tasks_, forward ? Op::recv_act : Op::recv_grad, edge, slot, rank_of(input)));
    });
    program.push_back(
        compute(forward ? Op::forward : Op::backward, segment, tasks_.micro_batch_of(slot)));
    for (const EdgeId edge : forward ? tasks_.edges_out(segment) : tasks_.edges_in(segment)) {
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
