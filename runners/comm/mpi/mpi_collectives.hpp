#pragma once

#include <cstddef>

#include "runners/comm/collective_terms.hpp"
#include "runners/comm/mpi/mpi_wait.hpp"
#include "runners/comm/slice.hpp"

namespace heteroperf {

/// How the collectives of one MPI group move data. Arguments are checked, there are at least two
/// ranks, ranks count within the group, and sums follow the order of ranks: their bits depend on
/// the number of ranks alone. Throws as Communicator does, and on one host Error{run_failed} when
/// the ranks disagree.
class MpiCollectives {
 public:
  virtual ~MpiCollectives() = default;

  virtual void all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) = 0;
  virtual void reduce(ConstBuffer mine, MutableBuffer result, std::size_t root,
                      Reduction reduction) = 0;
  virtual void broadcast(MutableBuffer values, std::size_t root) = 0;
  virtual void all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) = 0;
  virtual void reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                              Reduction reduction) = 0;
  virtual void all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                          Counts from_each) = 0;
  virtual void barrier() = 0;
  /// Moves no data. On one host, meets the other ranks and throws when they disagree; between
  /// hosts it does nothing.
  virtual void agree(const CollectiveTerms& terms, const WaitedFor& waited) = 0;
};

/// Slice `index` of `slices` of `count` elements: whole cache lines of every type.
inline Slice slice_of(std::size_t count, std::size_t index, std::size_t slices) {
  return even_slice(count, index, slices, 64);
}

}  // namespace heteroperf
