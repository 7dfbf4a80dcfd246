#pragma once

#include <cstdint>
#include <vector>

#include "runners/schedule/ir/task_table.hpp"

namespace heteroperf {

constexpr bool is_message(Op op) { return is_send(op) || is_receive(op); }
constexpr bool carries_gradient(Op op) { return op == Op::send_grad || op == Op::recv_grad; }

/// Dense numbers for what goes over the edges of a graph: one per (edge, micro-batch, part), shared
/// by the activation and its gradient. Takes any instruction, however wrong.
class MessageIndex {
 public:
  /// The table must outlive the index.
  explicit MessageIndex(const TaskTable& tasks);

  std::int32_t size() const { return first_.back(); }
  /// `slot`: of either end.
  std::int32_t of(int edge, std::int32_t slot) const {
    return first_[edge] + slot - tasks_->first_slot(tasks_->segment_of(slot));
  }
  /// −1 unless the graph has this message and this end of it lies on `rank`.
  std::int32_t find(const Instruction& instruction, int rank) const;

  int rank_from(int edge) const { return rank_[tasks_->graph().edges[edge].from]; }
  int rank_to(int edge) const { return rank_[tasks_->graph().edges[edge].to]; }
  bool crosses(int edge) const { return pair_[edge] >= 0; }
  /// (source rank, target rank, kind) of a crossing edge's messages, as a dense number.
  int channel(int edge, bool gradient) const { return 2 * pair_[edge] + (gradient ? 1 : 0); }
  int channels() const { return channels_; }

 private:
  const TaskTable* tasks_;
  std::vector<std::int32_t> first_;  // [edge], and the total
  std::vector<int> rank_;            // [segment]
  std::vector<int> pair_;            // [edge]; −1: stays on its rank
  int channels_ = 0;
};

}  // namespace heteroperf
