#include "runners/schedule/lower/lowering.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "metrics/base/text_file.hpp"
#include "runners/schedule/check/validator.hpp"
#include "runners/schedule/formats/csv.hpp"
#include "runners/schedule/formats/schedule_json.hpp"
#include "runners/schedule/simulate/simulator.hpp"
#include "tests/unit/runners/schedule/generated.hpp"
#include "tests/unit/runners/schedule/random_schedule.hpp"
#include "tests/unit/runners/schedule/rank_threads.hpp"

namespace heteroperf {
namespace {

/// Empty where everything holds, sends may wait for receives, and nothing of the order is lost.
std::string flaw(const Schedule& source, const Schedule& lowered) {
  const ScheduleChecks checks = check_schedule(lowered);
  if (!checks.problems.empty()) return checks.problems.front().text();
  if (!checks.ok()) return "not ok";
  if (checks.deadlock_free != DeadlockFreedom::rendezvous) return to_string(checks.deadlock_free);
  if (!(compute_only(lowered) == source)) return "compute_only() gives another schedule";
  return "";
}

std::string texts(const std::vector<Instruction>& program) {
  std::string all;
  for (const Instruction& i : program) {
    if (i.op == Op::free) continue;
    all += (all.empty() ? "" : " | ") + to_text(i);
  }
  return all;
}

TEST(Lowering, RandomOrdersOfRandomGraphs) {
  std::mt19937_64 random(11);
  for (int k = 0; k < 400; ++k) {
    const Schedule schedule = random_schedule(random_graph(random), random);
    const Schedule lowered = lower(schedule);
    ASSERT_EQ(flaw(schedule, lowered), "") << "case " << k;
    EXPECT_EQ(lower(schedule), lowered);
    EXPECT_EQ(lower(lowered), lowered);
  }
}

TEST(Lowering, EveryGenerator) {
  std::mt19937_64 random(12);
  int made = 0;
  for (const Generator& generator : generators()) {
    if (std::string(generator.name) == "auto") continue;
    for (int k = 0; k < 8; ++k) {
      const int ranks = 2 * pick(random, 1, 4);
      ScheduleRequest wish = request(ranks, ranks * pick(random, 1, 3), pick(random, 1, 4),
                                     pick(random, 1, 4), pick(random, 1, 4), pick(random, 0, 4));
      if (std::string(generator.name) == "seq1f1b") wish.parts = 2;
      Schedule schedule;
      try {
        schedule = generator.make(wish);
      } catch (const UserError&) {
        continue;
      }
      ASSERT_EQ(flaw(schedule, lower(schedule)), "") << generator.name << " " << ranks;
      ++made;
    }
  }
  EXPECT_GT(made, 50);
}

TEST(Lowering, CostsNoTimeWhereMessagesTakeNone) {
  SimulationOptions links;
  links.model = NetworkModel::links;
  for (const char* name : {"1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "dualpipe", "chimera"}) {
    const Schedule schedule = make(name, request(4, 8, 3, 3, 2, 0));
    const double free = timed(schedule).makespan;
    const Schedule lowered = lower(schedule);
    EXPECT_NEAR(report(lowered, simulate(lowered, links)).makespan, free, 1e-9 * free) << name;
  }
}

TEST(Lowering, TwoStages) {
  const Schedule lowered = lower(make("1f1b", request(2, 2, 2, 2, 2, 0.5)));
  EXPECT_EQ(
      texts(lowered.programs[0]),
      "LOAD 0.0 | F 0.0 | SEND_ACT 0.0>1 | LOAD 0.1 | F 0.1 | SEND_ACT 0.1>1 | RECV_GRAD 0.0<1 "
      "| BW 0.0 | RECV_GRAD 0.1<1 | BW 0.1 | REDUCE_GRAD 0 | OPT_STEP");
  EXPECT_EQ(
      texts(lowered.programs[1]),
      "RECV_ACT 1.0<0 | F 1.0 | LOSS 1.0 | RECV_ACT 1.1<0 | BW 1.0 | SEND_GRAD 1.0>0 | F 1.1 | "
      "LOSS 1.1 | BW 1.1 | SEND_GRAD 1.1>0 | REDUCE_GRAD 1 | OPT_STEP");
}

/// Two branches of two segments in opposite directions.
PipelineGraph crossing_branches(int micro_batches) {
  PipelineGraph graph;
  graph.ranks = 2;
  graph.micro_batches = micro_batches;
  for (const int rank : {0, 1, 1, 0}) graph.segments.emplace_back().rank = rank;
  graph.edges = {{0, 1, 1, true}, {2, 3, 1, true}};
  normalise(graph);
  return graph;
}

TEST(Lowering, GroupsMessagesThatCross) {
  const Schedule lowered = lower(fill_and_drain(crossing_branches(1)));
  const auto& a = lowered.programs[0];
  EXPECT_EQ(texts(a),
            "LOAD 0.0 | F 0.0 | SEND_ACT 0.0>1 | RECV_ACT 3.0<1 | F 3.0 | LOSS 3.0 | BW 3.0 | "
            "SEND_GRAD 3.0>1 | RECV_GRAD 0.0<1 | REDUCE_GRAD 3 | BW 0.0 | "
            "REDUCE_GRAD 0 | OPT_STEP");
  for (const auto& program : lowered.programs) {
    for (const Instruction& i : program) EXPECT_EQ(is_send(i.op) || is_receive(i.op), i.group >= 0);
  }
  EXPECT_EQ(check_schedule(lowered).deadlock_free, DeadlockFreedom::rendezvous);
}

TEST(Lowering, GroupsAreNeverTooLarge) {
  // 300 edges each way at one point.
  PipelineGraph graph;
  graph.ranks = 2;
  for (int rank : {0, 1}) {
    graph.segments.emplace_back().rank = rank;
  }
  for (int k = 0; k < 600; ++k) {
    graph.segments.emplace_back().rank = 1 - k % 2;
    graph.edges.push_back({SegmentId(k % 2), SegmentId(k + 2), 1, true});
  }
  normalise(graph);
  const Schedule schedule = fill_and_drain(graph);
  const Schedule lowered = lower(schedule);
  EXPECT_EQ(flaw(schedule, lowered), "");
  std::map<std::int32_t, int> sizes;
  for (const Instruction& i : lowered.programs[0]) sizes[i.group] += i.group >= 0;
  EXPECT_GT(sizes.size(), 2u);
  for (const auto& [group, size] : sizes) EXPECT_LE(size, 256);
}

TEST(Lowering, RanksInACircleSendTogether) {
  PipelineGraph graph = circle_graph(3);
  graph.latency = 1;
  const Schedule lowered = lower(fill_and_drain(graph));
  for (const auto& program : lowered.programs) {
    EXPECT_EQ(to_text(program[1]).substr(0, 1), "F");
    EXPECT_GE(program[2].group, 0);
    EXPECT_EQ(program[2].group, program[3].group);
  }
  EXPECT_EQ(check_schedule(lowered).deadlock_free, DeadlockFreedom::rendezvous);
}

TEST(Lowering, FusedPairsKeepTheirMessagesOutside) {
  const Schedule lowered = lower(make("dualpipe", request(4, 8, 1, 1, 1, 0.1)));
  int pairs = 0;
  for (const auto& program : lowered.programs) {
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (!program[i].fused_with_next) continue;
      ++pairs;
      EXPECT_EQ(program[i].op, Op::forward);
      EXPECT_EQ(program[i + 1].op, Op::backward);
    }
  }
  EXPECT_GT(pairs, 0);
}

TEST(Lowering, CopiesReduceTogether) {
  const Schedule lowered = lower(make("chimera", request(4, 4)));
  for (int rank = 0; rank < 4; ++rank) {
    std::set<int> weights;
    for (const Instruction& i : lowered.programs[rank]) {
      if (i.op == Op::reduce_grad) weights.insert(lowered.graph.segments[i.segment].weights);
    }
    EXPECT_EQ(weights, (std::set<int>{rank, 3 - rank}));
    EXPECT_EQ(lowered.programs[rank].back().op, Op::opt_step);
  }
}

TEST(Lowering, RefusesWhatCannotRun) {
  Schedule schedule = make("1f1b", request(2, 2));
  schedule.programs[0].pop_back();
  EXPECT_THROW(lower(schedule), UserError);

  // Each rank waits for the other's second micro-batch first.
  Schedule cyclic = fill_and_drain(crossing_branches(1));
  std::swap(cyclic.programs[0][0], cyclic.programs[0][1]);
  std::swap(cyclic.programs[1][0], cyclic.programs[1][1]);
  try {
    lower(cyclic);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 0, 0: F 3.0"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 1, 0: F 1.0"), std::string::npos);
  }
}

Schedule table(const char* name) {
  const std::string path = std::string(HETEROPERF_TEST_DATA "/schedules/") + name;
  return read_csv(read_text_file(path, "sample"), {}, {}).schedule;
}

using Message = std::tuple<int, Op, SegmentId, MicroBatchId, int>;  // rank, kind, …, peer
std::multiset<Message> messages_of(const Schedule& schedule) {
  std::multiset<Message> messages;
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
    for (const Instruction& i : schedule.programs[rank]) {
      if (is_send(i.op) || is_receive(i.op)) {
        messages.insert({rank, i.op, i.segment, i.micro_batch, i.peer});
      }
    }
  }
  return messages;
}

TEST(Lowering, AgreesWithPyTorchOnMessages) {
  const Schedule lowered = lower(table("pytorch_zb1p_2rank_2stage_compute.csv"));
  const Schedule comms = table("pytorch_zb1p_2rank_2stage_comms.csv");
  EXPECT_EQ(messages_of(lowered), messages_of(comms));
  EXPECT_EQ(check_schedule(lowered).deadlock_free, DeadlockFreedom::rendezvous);
  const ScheduleChecks checks = check_schedule(comms);
  EXPECT_TRUE(checks.ok()) << (checks.problems.empty() ? "" : checks.problems.front().text());
}

TEST(Lowering, ThreadsRunItToTheEnd) {
  std::mt19937_64 random(13);
  constexpr std::chrono::seconds patience(20);
  for (int k = 0; k < 40; ++k) {
    const Schedule lowered = lower(random_schedule(random_graph(random), random));
    EXPECT_TRUE(run_threads(lowered, SendMode::rendezvous, patience).ended) << "case " << k;
  }
  for (const char* name : {"interleaved-1f1b", "zb-v", "dualpipev", "chimera", "looped-bfs"}) {
    const Schedule lowered = lower(make(name, request(4, 8, 1, 1, 1, 0.2)));
    EXPECT_TRUE(run_threads(lowered, SendMode::rendezvous, patience).ended) << name;
  }
}

}  // namespace
}  // namespace heteroperf
