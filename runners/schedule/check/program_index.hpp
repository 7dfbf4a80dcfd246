#pragma once

#include <cstdint>
#include <vector>

#include "runners/schedule/check/findings.hpp"
#include "runners/schedule/ir/collective_index.hpp"
#include "runners/schedule/ir/message_index.hpp"

namespace heteroperf {

/// Where everything stands in the programs of a schedule, found in one pass that checks that each
/// rank's order respects what an instruction needs there (V2), that instructions stand on the rank
/// of their segment (V3), and that nothing stands twice.
class ProgramIndex {
 public:
  static constexpr std::int32_t absent = -1;

  struct SlotPlaces {
    std::int32_t load = absent, forward = absent, loss = absent;
    std::int32_t gradient = absent;  ///< B or BW
    std::int32_t last = absent;      ///< W or BW
  };
  struct MessagePlaces {
    std::int32_t send_act = absent, receive_act = absent;
    std::int32_t send_grad = absent, receive_grad = absent;
  };

  ProgramIndex(const Schedule& schedule, const TaskTable& tasks, const MessageIndex& messages,
               const CollectiveIndex& collectives, Findings& findings);

  const Schedule& schedule() const { return *schedule_; }
  const TaskTable& tasks() const { return *tasks_; }
  const MessageIndex& messages() const { return *messages_; }
  const CollectiveIndex& collectives() const { return *collectives_; }
  const SlotPlaces& slot(std::int32_t slot) const { return slots_[slot]; }
  const MessagePlaces& message(std::int32_t message) const { return sent_[message]; }

  bool lowered() const { return schedule_->level == ScheduleLevel::lowered; }
  /// Holds what an executor needs (buffers, steps, …), not only compute and messages, as tables of
  /// other programs do.
  bool executable() const { return executable_; }
  bool is_source(int segment) const { return tasks_->edges_in(segment).empty(); }

  /// Everything a graph asks of compute is there (V1).
  void check_complete(Findings& findings) const;

 private:
  class Pass;

  const Schedule* schedule_;
  const TaskTable* tasks_;
  const MessageIndex* messages_;
  const CollectiveIndex* collectives_;
  bool executable_ = false;
  std::vector<SlotPlaces> slots_;
  std::vector<MessagePlaces> sent_;
  std::vector<std::int32_t> sets_met_;  // [collective]: ranks that have this INTERACT
};

}  // namespace heteroperf
