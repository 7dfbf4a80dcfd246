// Runs every check of a schedule and puts their verdicts together. A schedule may come from a file
// of anybody, so nothing is trusted: the graph is normalised first, and a graph that asks for much
// more than the programs hold is refused before tables of its size are made.

#include "runners/schedule/check/validator.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runners/schedule/check/program_index.hpp"

namespace heteroperf {
namespace {

/// The outcome of each Check.
constexpr bool ScheduleChecks::*verdicts[check_count] = {
    &ScheduleChecks::complete, &ScheduleChecks::ordered,     &ScheduleChecks::placed,
    &ScheduleChecks::matched,  &ScheduleChecks::collectives, &ScheduleChecks::memory_ok,
    &ScheduleChecks::stepped};

/// The problem to show for a schedule that hangs (`none`) or may hang where sends are not buffered.
Problem waiting_problem(ScheduleLevel level, DeadlockFreedom freedom,
                        const std::vector<std::string>& cycle) {
  const std::string places = fmt::format("{}", fmt::join(cycle, "; "));
  if (freedom == DeadlockFreedom::none) {
    return {"the programs wait for each other for ever", places,
            level == ScheduleLevel::lowered ? "Reorder one of these ranks, or group its messages."
                                            : "Reorder one of these ranks."};
  }
  return {"the programs may wait for each other for ever where sends are not buffered", places,
          "Send and receive in one order on both ranks, or in one group."};
}

/// A hollow schedule is large and its programs lack more than they have.
bool is_hollow(const Schedule& schedule) {
  constexpr std::int64_t few_slots = 1 << 22;
  std::int64_t slots = 0;
  for (const Segment& segment : schedule.graph.segments) {
    slots += std::int64_t{segment.micro_batches} * schedule.graph.parts;
  }
  const auto instructions = static_cast<std::int64_t>(instruction_count(schedule));
  return slots > few_slots && instructions < slots;
}

/// A schedule that is not looked at further; no check holds.
ScheduleChecks refused(std::vector<Problem> problems) {
  ScheduleChecks checks;
  checks.problems = std::move(problems);
  return checks;
}

/// Checks a schedule whose graph is normalised.
ScheduleChecks check_normal(const Schedule& schedule, std::optional<double> memory_limit) {
  const GraphIndex numbers(schedule.graph);
  Findings findings;
  const ProgramIndex index(schedule, numbers, findings);
  index.check_complete(findings);
  check_messages(index, findings);
  check_collectives(index, findings);
  check_memory(schedule, memory_limit, findings);
  check_buffers(index, findings);
  check_steps(index, findings);
  DeadlockVerdict verdict = find_deadlock(index);

  ScheduleChecks checks;
  for (int c = 0; c < check_count; ++c) checks.*verdicts[c] = findings.holds(static_cast<Check>(c));
  checks.deadlock_free = verdict.freedom;
  checks.cycle = std::move(verdict.cycle);
  checks.problems = std::move(findings.problems());
  // A rank that waits for what is missing or stands wrong is no news: that has been said.
  if (verdict.freedom < DeadlockFreedom::nccl && checks.complete && checks.ordered) {
    checks.problems.push_back(waiting_problem(schedule.level, verdict.freedom, checks.cycle));
  }
  return checks;
}

}  // namespace

bool ScheduleChecks::ok() const {
  return deadlock_free >= DeadlockFreedom::nccl &&
         std::ranges::all_of(verdicts, [&](auto verdict) { return this->*verdict; });
}

ScheduleChecks check_schedule(const Schedule& schedule, std::optional<double> memory_limit) {
  if (schedule.programs.size() != static_cast<std::size_t>(schedule.graph.ranks)) {
    return refused({{fmt::format("a schedule with {} programs for {} ranks",
                                 schedule.programs.size(), schedule.graph.ranks),
                     "", "Give one program per rank."}});
  }
  try {
    Schedule normal;
    normal.graph = schedule.graph;
    normalise(normal.graph);
    if (normal.graph == schedule.graph) {
      if (!is_hollow(schedule)) return check_normal(schedule, memory_limit);
    } else {
      normal.level = schedule.level;
      normal.programs = schedule.programs;
      if (!is_hollow(normal)) return check_normal(normal, memory_limit);
    }
    return refused({{"the programs are nearly empty",
                     fmt::format("they have {} instructions for {} segments and {} micro-batches",
                                 instruction_count(schedule), schedule.graph.segments.size(),
                                 schedule.graph.micro_batches),
                     "Give every segment its F and BW of every micro-batch."}});
  } catch (const UserError& error) {
    return refused(error.problems());
  }
}

}  // namespace heteroperf
