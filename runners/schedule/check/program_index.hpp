#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runners/schedule/check/token_machine.hpp"
#include "runners/schedule/check/validator.hpp"
#include "runners/schedule/ir/graph_index.hpp"

// The checks of check_schedule(), and what they share. Each check stands in a file of its own
// kind: V1 to V3 in program_index.cpp, V4, V6 and V8 in exchange_checks.cpp, V7 in
// buffer_checks.cpp, V5 in deadlock.cpp.

namespace heteroperf {

enum class Check { complete, ordered, placed, matched, collectives, memory, stepped };
constexpr int check_count = 7;

/// Collects the outcome of the checks: whether each holds, and the first problems of each.
class Findings {
 public:
  /// Counts a failure. The result is true where there is room for its text.
  bool fail(Check check) { return ++failures_[static_cast<std::size_t>(check)] <= most_problems; }
  void add(std::string problem, std::string why, std::string suggestion = {}) {
    problems_.push_back({std::move(problem), std::move(why), std::move(suggestion)});
  }
  /// Counts the failure of an instruction, and names it where there is room.
  void fail(Check check, const Schedule& schedule, TokenMachine::Place at, std::string_view why) {
    if (fail(check)) add(place_in_program(schedule, at.rank, at.index), std::string(why));
  }
  bool holds(Check check) const { return failures_[static_cast<std::size_t>(check)] == 0; }
  std::vector<Problem>& problems() { return problems_; }

 private:
  std::array<long long, check_count> failures_{};
  std::vector<Problem> problems_;
};

/// The messages and collectives of all programs of a lowered schedule, rank by rank in order. The
/// ends of each message are matched: the n-th send of a channel with its n-th receive.
class ProgramSteps {
 public:
  struct Step {
    TokenMachine::Place place;
    std::int32_t run = -1;      ///< number of the steps that one rank takes together
    std::int32_t subject = -1;  ///< the channel, or the collective; −1: not one of the graph's
    std::int32_t message = -1;
    std::int32_t ordinal = -1;  ///< place in its channel, counted at this end
    std::int32_t partner = -1;  ///< the other end, among the steps
    Op op = Op::idle;
  };

  ProgramSteps(const Schedule& schedule, const GraphIndex& numbers);

  const std::vector<Step>& all() const { return steps_; }
  std::int32_t runs() const { return runs_; }
  bool begins_run(std::size_t i) const { return i == 0 || steps_[i - 1].run != steps_[i].run; }
  /// Runs as events: those at both ends of a message, and those of a collective, are one.
  UnionFind events(const CollectiveIndex& collectives) const;

 private:
  void gather(int rank, const GraphIndex& numbers);
  bool together(const Step& before, const Step& step) const;
  void match(int channels);

  const Schedule* schedule_;
  std::vector<Step> steps_;
  std::int32_t runs_ = 0;
};

/// The places of everything in the programs of a schedule. One pass finds them, and checks that
/// each rank's order respects what an instruction needs there (V2), that instructions stand on the
/// rank of their segment (V3), and that nothing stands twice.
class ProgramIndex {
 public:
  static constexpr std::int32_t absent = -1;

  struct SlotPlaces {
    std::int32_t load = absent, forward = absent, loss = absent;
    std::int32_t gradient = absent;  ///< B or BW
    std::int32_t last = absent;      ///< W or BW
  };
  /// The places of a message's four instructions, from SEND_ACT to RECV_GRAD.
  struct MessagePlaces {
    std::array<std::int32_t, 4> of{absent, absent, absent, absent};
    std::int32_t& operator[](Op op) {
      return of[static_cast<std::size_t>(op) - static_cast<std::size_t>(Op::send_act)];
    }
  };

  /// Schedule and numbers must outlive the index.
  ProgramIndex(const Schedule& schedule, const GraphIndex& numbers, Findings& findings);

  const Schedule& schedule() const { return *schedule_; }
  const PipelineGraph& graph() const { return schedule_->graph; }
  const GraphIndex& numbers() const { return *numbers_; }
  const SlotPlaces& slot(std::int32_t slot) const { return slots_[slot]; }
  MessagePlaces message(std::int32_t message) const { return sent_[message]; }
  /// The schedule must be lowered.
  const ProgramSteps& steps() const { return *steps_; }

  bool lowered() const { return schedule_->level == ScheduleLevel::lowered; }
  /// The schedule holds what an executor needs (buffers, steps, …), not only compute and messages,
  /// as tables of other programs do.
  bool executable() const { return executable_; }

  /// V1: everything a graph asks of compute is there.
  void check_complete(Findings& findings) const;

 private:
  class Pass;

  const Schedule* schedule_;
  const GraphIndex* numbers_;
  bool executable_ = false;
  std::vector<SlotPlaces> slots_;
  std::vector<MessagePlaces> sent_;
  std::vector<std::int32_t> sets_met_;  // [collective]: ranks that have this INTERACT
  std::optional<ProgramSteps> steps_;
};

/// V4: every value that crosses ranks has one send and one receive, in one order at both ends of
/// its channel; groups are in one piece and of at most `most_group_messages`.
void check_messages(const ProgramIndex& index, Findings& findings);

/// V6: every member of a collective names it once, and all in one order.
void check_collectives(const ProgramIndex& index, Findings& findings);

/// V7, first half: no rank's memory (MemoryPeaks::memory) rises above the limit.
void check_memory(const Schedule& schedule, std::optional<double> limit, Findings& findings);

/// V7, second half, for executable schedules: every value of ValueIndex lies in the buffer that its
/// maker and its users name, no buffer is filled while it holds another value or read when it does
/// not hold this one, and each is freed once.
void check_buffers(const ProgramIndex& index, Findings& findings);

/// V8: each rank reduces its weights after their last gradient and its tied weights after that, and
/// steps once, after everything.
void check_steps(const ProgramIndex& index, Findings& findings);

struct DeadlockVerdict {
  DeadlockFreedom freedom = DeadlockFreedom::none;
  /// The places of the ranks that wait for each other at the next level, "rank 0, 12: SEND_ACT
  /// 0.3>1"; a single line where somebody waits for what nobody does. Empty at `rendezvous`.
  std::vector<std::string> cycle;
};

/// V5: runs the programs without times, each rank as far as it gets. Any schedule whose graph is
/// normalised and which has a program for each rank is fine, however wrong. The cost is linear in
/// instructions, but for the search of the shortest cycle among those that wait.
DeadlockVerdict find_deadlock(const ProgramIndex& index);

}  // namespace heteroperf
