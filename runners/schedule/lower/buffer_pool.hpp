#pragma once

#include <cstdint>
#include <vector>

#include "runners/schedule/ir/value_index.hpp"

namespace heteroperf {

/// Gives the values of a schedule under construction their buffers, and tells which are free again:
/// each rank's buffers are small numbers, used again.
class BufferPool {
 public:
  BufferPool(const TaskTable& tasks, const MessageIndex& messages,
             const CollectiveIndex& collectives);

  const ValueIndex& values() const { return values_; }
  /// A buffer on `rank` for a value that is used `uses` times until it is free.
  std::int32_t fill(int rank, std::int64_t value, std::int32_t uses);
  /// Of any value but an INTERACT's.
  std::int32_t of(std::int64_t value) const { return entries_[value].buffer; }
  bool filled(std::int64_t value) const { return entries_[value].buffer >= 0; }
  void use(int rank, std::int64_t value);

  /// Uses of the output of a slot's F, and of the gradient its B (`split`) or BW makes.
  std::int32_t output_uses(std::int32_t slot) const { return output_uses_[segment(slot)]; }
  std::int32_t gradient_uses(std::int32_t slot, bool split) const {
    return gradient_uses_[segment(slot)] + (split ? 1 : 0);
  }
  /// The last gradient (W or BW) of a slot is done. `split`: B and W were apart.
  void finish(int rank, std::int32_t slot, bool split);

  /// Of a rank, since the last call: to be freed, after which they may be given again.
  template <class Free>
  void drain(int rank, Free free) {
    for (const std::int32_t buffer : done_[rank]) {
      free(buffer);
      free_[rank].push_back(buffer);
    }
    done_[rank].clear();
  }

 private:
  struct Entry {
    std::int32_t buffer = -1, uses = 0;
  };
  /// An INTERACT's value lies on several ranks.
  Entry& entry(int rank, std::int64_t value);
  int segment(std::int32_t slot) const { return tasks_->segment_of(slot); }

  const TaskTable* tasks_;
  const CollectiveIndex* collectives_;
  ValueIndex values_;
  std::vector<Entry> entries_;                             // [value]; of INTERACTs [value, rank]
  std::vector<std::int64_t> first_entry_;                  // [INTERACT]
  std::vector<std::int32_t> output_uses_, gradient_uses_;  // [segment]
  std::vector<std::int32_t> buffers_;                      // [rank]: so far
  std::vector<std::vector<std::int32_t>> free_, done_;     // [rank]
};

}  // namespace heteroperf
