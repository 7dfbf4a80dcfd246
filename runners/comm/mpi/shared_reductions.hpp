#pragma once

#include <vector>

#include "runners/comm/mpi/shared_host.hpp"

namespace heteroperf {

/// A reduction whose result goes to one rank or to all.
struct SharedReducing {
  ConstBuffer mine;
  MutableBuffer result;  ///< empty where it is not wanted
  Reduction reduction;
  WaitedFor waited;
  CollectiveTerms terms;
  bool wanted;        ///< here
  std::size_t first;  ///< ranks [first, last) get the result
  std::size_t last;
};

/// The collectives that sum, of ranks on one host. At least one element. Throws as MpiCollectives.
class SharedReductions {
 public:
  explicit SharedReductions(SharedHost& host) : host_(host), sources_(host.members()) {}

  void reduce_to_some(const SharedReducing& job);
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts, Reduction reduction);

 private:
  void reduce_small(const SharedReducing& job);
  void reduce_staged(const SharedReducing& job);
  void reduce_direct(const SharedReducing& job);
  Slice made_here(const SharedReducing& job) const;
  void make_part(const SharedReducing& job, std::size_t begin, std::size_t count, std::size_t turn);
  void take_parts(const SharedReducing& job, std::size_t begin, std::size_t count,
                  std::size_t turn);
  void scatter_direct(ConstBuffer all, MutableBuffer mine, Counts counts, Reduction reduction,
                      const CollectiveTerms& terms);
  /// Elements [begin, begin + count) of every rank's readable buffer, reduced in order.
  void reduce_readable(ConstBuffer own, std::size_t begin, void* result, std::size_t count,
                       Reduction reduction, const WaitedFor& waited);
  /// Elements reduced at a time out of other processes' memory.
  std::size_t direct_part(DataType type) const;

  SharedHost& host_;
  std::vector<const void*> sources_;
  std::vector<std::byte> parts_;
};

}  // namespace heteroperf
