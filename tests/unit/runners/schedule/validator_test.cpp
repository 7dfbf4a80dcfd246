#include "runners/schedule/check/validator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>

#include "runners/schedule/lower/lowering.hpp"
#include "tests/unit/runners/schedule/generated.hpp"
#include "tests/unit/runners/schedule/random_schedule.hpp"
#include "tests/unit/runners/schedule/rank_threads.hpp"

namespace heteroperf {
namespace {

bool flawless(const Schedule& schedule) {
  const ScheduleChecks checks = check_schedule(schedule);
  return checks.ok() && checks.deadlock_free == DeadlockFreedom::rendezvous;
}

std::vector<Schedule> samples() {
  std::mt19937_64 random(21);
  std::vector<Schedule> samples{
      lower(make("1f1b", request(3, 4, 1, 1, 1, 0.1))), lower(make("zb-v", request(2, 4))),
      lower(make("chimera", request(2, 4))), lower(make("dualpipe", request(2, 4)))};
  for (int k = 0; k < 40; ++k) {
    samples.push_back(lower(random_schedule(random_graph(random), random)));
  }
  return samples;
}

using Mutation = std::function<void(std::vector<Instruction>&, std::size_t)>;

/// Applies a mutation wherever it `applies`, alone, and names those that pass all checks.
void expect_caught(
    const char* name, const Mutation& mutate,
    const std::function<bool(const std::vector<Instruction>&, std::size_t)>& applies) {
  int applied = 0;
  static std::vector<Schedule> all = samples();
  for (Schedule& sample : all) {
    for (std::size_t rank = 0; rank < sample.programs.size(); ++rank) {
      const std::vector<Instruction> original = sample.programs[rank];
      for (std::size_t i = 0; i < original.size(); ++i) {
        if (!applies(original, i)) continue;
        mutate(sample.programs[rank], i);
        EXPECT_FALSE(flawless(sample))
            << name << " of " << to_text(original[i]) << " at rank " << rank << ", " << i;
        sample.programs[rank] = original;
        ++applied;
      }
    }
  }
  EXPECT_GT(applied, 50) << name;
}

bool is_task(const Instruction& i) { return i.segment >= 0 && i.micro_batch >= 0; }
bool counts(const std::vector<Instruction>& program, std::size_t i) {
  return program[i].op != Op::idle && program[i].op != Op::recompute;
}

TEST(Validator, CatchesDroppedInstructions) {
  expect_caught(
      "drop", [](auto& program, std::size_t i) { program.erase(program.begin() + i); }, counts);
}

TEST(Validator, CatchesDuplicates) {
  expect_caught(
      "duplicate",
      [](auto& program, std::size_t i) { program.insert(program.begin() + i, program[i]); },
      counts);
}

TEST(Validator, CatchesSwapsOfWhatDependsOnEachOther) {
  expect_caught(
      "swap", [](auto& program, std::size_t i) { std::swap(program[i], program[i + 1]); },
      [](const auto& program, std::size_t i) {
        if (i + 1 == program.size() || program[i].fused_with_next) return false;
        const Instruction &a = program[i], &b = program[i + 1];
        const bool one_channel =
            a.op == b.op && a.peer == b.peer && (is_send(a.op) || is_receive(a.op));
        const bool one_slot = is_task(a) && a.segment == b.segment &&
                              a.micro_batch == b.micro_batch && a.part == b.part &&
                              a.op != Op::recompute && b.op != Op::recompute;
        const bool both_messages = a.peer >= 0 && b.peer >= 0;
        return one_channel || (one_slot && !both_messages && !is_send(a.op)) ||
               b.op == Op::opt_step;
      });
}

TEST(Validator, CatchesRetargetedInstructions) {
  const auto task = [](const auto& program, std::size_t i) { return is_task(program[i]); };
  const auto message = [](const auto& program, std::size_t i) { return program[i].peer >= 0; };
  expect_caught(
      "micro-batch + 1", [](auto& p, std::size_t i) { ++p[i].micro_batch; }, task);
  expect_caught(
      "segment + 1", [](auto& p, std::size_t i) { ++p[i].segment; }, task);
  expect_caught(
      "part + 1", [](auto& p, std::size_t i) { ++p[i].part; }, task);
  expect_caught(
      "peer + 1", [](auto& p, std::size_t i) { ++p[i].peer; }, message);
  expect_caught(
      "edge + 1", [](auto& p, std::size_t i) { ++p[i].edge; }, message);
  expect_caught(
      "sequence + 1", [](auto& p, std::size_t i) { ++p[i].sequence; }, message);
  expect_caught(
      "buffer + 1", [](auto& p, std::size_t i) { ++p[i].buffer; },
      [](const auto& p, std::size_t i) { return p[i].buffer >= 0; });
  expect_caught(
      "fused with next", [](auto& p, std::size_t i) { p[i].fused_with_next = true; }, message);
  expect_caught(
      "out of its group", [](auto& p, std::size_t i) { p[i].group = -1; },
      [](const auto& p, std::size_t i) { return p[i].group >= 0; });
}

TEST(Validator, SurvivesGarbage) {
  std::mt19937_64 random(22);
  const int wild[] = {
      -1, 0, 1, 7, -2, 1 << 30, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()};
  const auto any = [&] { return wild[random() % std::size(wild)]; };
  for (int k = 0; k < 300; ++k) {
    Schedule schedule = random_schedule(random_graph(random), random);
    if (chance(random, 80)) schedule = lower(schedule);
    if (chance(random, 10)) schedule.level = ScheduleLevel::compute;
    for (auto& program : schedule.programs) {
      for (int n = 0; n < 4 && !program.empty(); ++n) {
        Instruction& i = program[random() % program.size()];
        switch (pick(random, 0, 9)) {
          case 0:
            i.segment = SegmentId(any());
            break;
          case 1:
            i.micro_batch = MicroBatchId(any());
            break;
          case 2:
            i.edge = EdgeId(any());
            break;
          case 3:
            i.peer = any();
            break;
          case 4:
            i.buffer = any();
            break;
          case 5:
            i.op = static_cast<Op>(random() % 256);
            break;
          case 6:
            i.part = static_cast<std::uint16_t>(random());
            break;
          case 7:
            i.sequence = any();
            break;
          case 8:
            i.group = any();
            break;
          default:
            i.fused_with_next = !i.fused_with_next;
        }
      }
    }
    const ScheduleChecks checks = check_schedule(schedule, 1);
    EXPECT_LE(checks.problems.size(), 8u * most_problems + 1);
    EXPECT_EQ(checks.cycle.empty(), checks.deadlock_free == DeadlockFreedom::rendezvous);
  }
}

TEST(Validator, RefusesBrokenGraphs) {
  Schedule schedule = make("1f1b", request(2, 2));
  Schedule fewer = schedule;
  fewer.programs.pop_back();
  EXPECT_FALSE(check_schedule(fewer).problems.empty());
  Schedule beyond = schedule;
  beyond.graph.segments[1].rank = 9;
  EXPECT_FALSE(check_schedule(beyond).placed);
  EXPECT_FALSE(check_schedule(beyond).problems.empty());
  Schedule hollow = schedule;
  hollow.graph.micro_batches = 1 << 24;
  for (Segment& segment : hollow.graph.segments) segment.micro_batches = 1 << 24;
  EXPECT_NE(check_schedule(hollow).problems.front().text().find("nearly empty"), std::string::npos);
}

TEST(Validator, NamesWhatIsWrong) {
  Schedule schedule = make("1f1b", request(2, 3));
  schedule.programs[1].pop_back();
  ScheduleChecks checks = check_schedule(schedule);
  EXPECT_FALSE(checks.complete);
  EXPECT_EQ(checks.problems.front().problem, "BW 1.2 is missing");
  EXPECT_FALSE(checks.cycle.empty());

  Schedule moved = make("1f1b", request(2, 3));
  moved.programs[0].push_back(moved.programs[1].back());
  checks = check_schedule(moved);
  EXPECT_FALSE(checks.placed);
  EXPECT_TRUE(checks.complete);

  Schedule early = make("1f1b", request(2, 3));
  std::reverse(early.programs[1].begin(), early.programs[1].end());
  EXPECT_FALSE(check_schedule(early).ordered);

  Schedule late = lower(make("1f1b", request(2, 3)));
  std::rotate(late.programs[0].begin(), late.programs[0].end() - 1, late.programs[0].end());
  checks = check_schedule(late);
  EXPECT_FALSE(checks.stepped);
  EXPECT_TRUE(checks.matched);
}

TEST(Validator, BoundsMemory) {
  const Schedule schedule = make("gpipe", request(2, 6));
  EXPECT_TRUE(check_schedule(schedule, 6).memory_ok);
  const ScheduleChecks checks = check_schedule(schedule, 5.5);
  EXPECT_FALSE(checks.memory_ok);
  EXPECT_EQ(checks.problems.front().problem, "rank 0 holds 6 activations of a micro-batch");
}

/// Two branches in opposite directions, one micro-batch: both ranks have something for the other at
/// the same point.
Schedule crossing() {
  PipelineGraph graph;
  graph.ranks = 2;
  for (const int rank : {0, 1, 1, 0}) graph.segments.emplace_back().rank = rank;
  graph.edges = {{0, 1, 1, true}, {2, 3, 1, true}};
  normalise(graph);
  return lower(fill_and_drain(graph));
}

Schedule without_groups(Schedule schedule) {
  for (auto& program : schedule.programs) {
    for (Instruction& i : program) i.group = -1;
  }
  return schedule;
}

/// Sends before receives, wherever both stand side by side.
Schedule sends_first(Schedule schedule) {
  for (auto& program : schedule.programs) {
    for (std::size_t i = 0; i + 1 < program.size(); ++i) {
      if (is_receive(program[i].op) && is_send(program[i + 1].op)) {
        std::swap(program[i], program[i + 1]);
      }
    }
  }
  return schedule;
}

TEST(Deadlock, CrosswiseSendsNeedAGroup) {
  const Schedule grouped = sends_first(crossing());
  EXPECT_EQ(check_schedule(grouped).deadlock_free, DeadlockFreedom::rendezvous);
  EXPECT_TRUE(run_threads(grouped, SendMode::rendezvous, std::chrono::seconds(20)).ended);

  const Schedule planted = without_groups(grouped);
  const ScheduleChecks checks = check_schedule(planted);
  EXPECT_EQ(checks.deadlock_free, DeadlockFreedom::buffered);
  EXPECT_FALSE(checks.ok());
  EXPECT_TRUE(checks.matched && checks.ordered && checks.complete);
  EXPECT_EQ(checks.cycle,
            (std::vector<std::string>{"rank 0, 2: SEND_ACT 0.0>1", "rank 1, 2: SEND_ACT 2.0>0"}));
  EXPECT_TRUE(run_threads(planted, SendMode::buffered, std::chrono::seconds(20)).ended);
  const ThreadRun run = run_threads(planted, SendMode::rendezvous, std::chrono::milliseconds(300));
  EXPECT_FALSE(run.ended);
  EXPECT_EQ(run.stands_at, (std::vector<std::int32_t>{2, 2}));
}

TEST(Deadlock, ThreadsStandWhereTheCycleSays) {
  std::mt19937_64 random(23);
  int hung = 0, freed = 0;
  for (int k = 0; k < 300 && hung < 5; ++k) {
    PipelineGraph graph = random_graph(random);
    graph.interactions.clear();
    const Schedule planted =
        without_groups(sends_first(lower(random_schedule(std::move(graph), random))));
    const ScheduleChecks checks = check_schedule(planted);
    if (!checks.matched || !checks.ordered) continue;
    const bool safe = checks.deadlock_free == DeadlockFreedom::rendezvous;
    if (safe && freed++ > 20) continue;
    const ThreadRun run =
        run_threads(planted, SendMode::rendezvous,
                    safe ? std::chrono::milliseconds(20'000) : std::chrono::milliseconds(300));
    EXPECT_EQ(run.ended, safe) << "case " << k;
    if (safe) continue;
    ++hung;
    for (const std::string& line : checks.cycle) {
      int rank = -1, index = -1;
      ASSERT_EQ(std::sscanf(line.c_str(), "rank %d, %d:", &rank, &index), 2) << line;
      EXPECT_EQ(run.stands_at[rank], index) << line;
    }
    ASSERT_EQ(checks.deadlock_free, DeadlockFreedom::buffered);
    EXPECT_TRUE(run_threads(planted, SendMode::buffered, std::chrono::seconds(20)).ended);
  }
  EXPECT_EQ(hung, 5);
}

TEST(Deadlock, NcclNeedsOrderOnlyBetweenTwoRanks) {
  // Three ranks in a circle send before they receive: with a stream for each pair nobody waits.
  PipelineGraph graph = circle_graph(3);
  graph.latency = 1;
  for (Edge& edge : graph.edges) edge.gradient = false;
  const Schedule planted = without_groups(sends_first(lower(fill_and_drain(graph))));
  const ScheduleChecks checks = check_schedule(planted);
  EXPECT_EQ(checks.deadlock_free, DeadlockFreedom::nccl);
  EXPECT_EQ(checks.cycle.size(), 3u);
  EXPECT_TRUE(checks.ok());
}

TEST(Deadlock, ShowsTheShortestCycle) {
  // A circle of three and one of two, the two ranks being part of neither's start.
  PipelineGraph graph;
  graph.ranks = 5;
  const auto link = [&](int from_rank, int to_rank) {
    const SegmentId s(graph.segments.size());
    graph.segments.emplace_back().rank = from_rank;
    graph.segments.emplace_back().rank = to_rank;
    graph.edges.push_back({s, s + 1, 1, false});
  };
  link(0, 1), link(1, 2), link(2, 0), link(3, 4), link(4, 3);
  normalise(graph);
  const ScheduleChecks checks =
      check_schedule(without_groups(sends_first(lower(fill_and_drain(graph)))));
  ASSERT_EQ(checks.deadlock_free, DeadlockFreedom::buffered);
  EXPECT_EQ(checks.cycle.size(), 2u);
}

TEST(Deadlock, ReceivesThatNobodySends) {
  Schedule schedule = lower(make("1f1b", request(2, 2)));
  std::erase_if(schedule.programs[0], [](const Instruction& i) { return is_send(i.op); });
  const ScheduleChecks checks = check_schedule(schedule);
  EXPECT_EQ(checks.deadlock_free, DeadlockFreedom::none);
  ASSERT_EQ(checks.cycle.size(), 1u);
  EXPECT_EQ(checks.cycle.front(), "rank 1, 0: RECV_ACT 1.0<0 (waits for what nobody does)");
}

TEST(Deadlock, CollectivesInTwoOrders) {
  Schedule schedule = lower(make("chimera", request(2, 2)));
  auto& program = schedule.programs[1];
  std::vector<std::size_t> at;
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (program[i].op == Op::reduce_grad) at.push_back(i);
  }
  ASSERT_EQ(at.size(), 2u);
  // Both to the end, the other way round.
  const Instruction first = program[at[0]], second = program[at[1]];
  program.erase(program.begin() + static_cast<std::ptrdiff_t>(at[1]));
  program.erase(program.begin() + static_cast<std::ptrdiff_t>(at[0]));
  program.insert(program.end() - 1, second);
  program.insert(program.end() - 1, first);
  const ScheduleChecks checks = check_schedule(schedule);
  EXPECT_FALSE(checks.collectives);
  EXPECT_TRUE(checks.stepped);
  EXPECT_EQ(checks.deadlock_free, DeadlockFreedom::none);
  EXPECT_EQ(checks.cycle.size(), 2u);
  EXPECT_FALSE(run_threads(schedule, SendMode::buffered, std::chrono::milliseconds(300)).ended);
}

}  // namespace
}  // namespace heteroperf
