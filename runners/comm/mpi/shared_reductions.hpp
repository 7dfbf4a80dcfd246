#pragma once

#include <vector>

#include "runners/comm/mpi/shared_host.hpp"

namespace heteroperf {

/// A reduction whose result goes to the ranks [first, last): to one rank or to all.
struct SharedReduction {
  CollectiveCall call;
  ConstBuffer mine;
  MutableBuffer result;  ///< empty where it is not wanted
  std::size_t first, last;

  bool is_wanted_by(std::size_t rank) const { return first <= rank && rank < last; }
  bool is_for_all() const { return last - first > 1; }
};

/// The summing collectives of ranks on one host. They take at least one element and throw as
/// MpiCollectives.
class SharedReductions {
 public:
  explicit SharedReductions(SharedHost& host) : host_(host), sources_(host.members()) {}

  void reduce_to_some(const SharedReduction& job);
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts, Reduction reduction);

 private:
  void reduce_small(const SharedReduction& job);
  void reduce_staged(const SharedReduction& job);
  void reduce_direct(const SharedReduction& job);
  /// Lets `sources_` point at the peers' slots of given data, `offset` bytes into each, and at this
  /// rank's own values.
  void use_given(std::size_t turn, std::size_t offset, ConstBuffer own_values);
  Slice slice_made_here(const SharedReduction& job) const;
  void make_part(const SharedReduction& job, Slice part, std::size_t turn);
  void take_part(const SharedReduction& job, Slice part, std::size_t turn);
  void scatter_direct(ConstBuffer all, MutableBuffer mine, Slice block, const CollectiveCall& call);
  /// Reduces a slice of every rank's readable buffer into `result`.
  void reduce_readable(ConstBuffer mine, Slice slice, void* result, const CollectiveCall& call);
  void reserve_parts(DataType type);
  /// The number of elements reduced at a time out of other processes' memory.
  std::size_t direct_part(DataType type) const;

  SharedHost& host_;
  std::vector<const void*> sources_;
  std::vector<std::byte> parts_;  ///< one part of each rank
};

}  // namespace heteroperf
