#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runners/schedule/ir/task_table.hpp"

namespace heteroperf {

/// Dense numbers for the collectives a graph asks for: REDUCE_GRAD of each weights, REDUCE_TIED of
/// each tied set (named once for each of its segments), INTERACT of each set of micro-batches.
/// Takes any instruction, however wrong.
class CollectiveIndex {
 public:
  /// The table must outlive the index.
  explicit CollectiveIndex(const TaskTable& tasks);

  static constexpr bool names_one(Op op) {
    return op == Op::interact || op == Op::reduce_grad || op == Op::reduce_tied;
  }

  std::int32_t size() const { return size_; }
  /// Distinct weights, numbered from 0; a weights' number is its REDUCE_GRAD's.
  int weights() const { return weights_; }
  int weights_of(int segment) const { return weights_of_[segment]; }
  std::int32_t tied(int set) const { return weights_ + set; }
  std::int32_t first_interaction() const { return first_set_.front(); }
  std::int32_t interaction(int interaction, int micro_batch) const;
  /// The ranks that take part, ascending.
  std::span<const int> ranks(std::int32_t collective) const;

  /// Follows one program; REDUCE_TIED names the sets of its segment in their order.
  class Reader {
   public:
    Reader(const CollectiveIndex& index, int rank);
    /// −1 unless the graph has this collective and `rank` takes part.
    std::int32_t find(const Instruction& instruction);

   private:
    std::int32_t find_interaction(const Instruction& instruction) const;
    const CollectiveIndex* index_;
    int rank_;
    std::vector<int> tied_seen_;  // [segment], where there are tied sets
  };

 private:
  const TaskTable* tasks_;
  int weights_ = 0;
  std::int32_t size_ = 0;
  std::vector<int> weights_of_;              // [segment]
  std::vector<std::int32_t> first_set_;      // [interaction], and the total
  std::vector<std::vector<int>> ranks_;      // [weights, tied set, interaction]
  std::vector<std::vector<int>> tied_sets_;  // [segment]
};

}  // namespace heteroperf
