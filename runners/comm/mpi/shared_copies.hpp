#pragma once

#include "runners/comm/mpi/shared_host.hpp"

namespace heteroperf {

/// The collectives that only move data, of ranks on one host. At least one element, except in
/// all_to_all. Throws as MpiCollectives.
class SharedCopies {
 public:
  explicit SharedCopies(SharedHost& host) : host_(host) {}

  void broadcast(MutableBuffer values, std::size_t root);
  void all_gather(ConstBuffer mine, MutableBuffer all, Counts counts);
  void all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs, Counts from_each);

 private:
  /// Of any rank: what all decide upon alike.
  struct Largest {
    std::size_t block = 0, total = 0;
  };

  void broadcast_direct(MutableBuffer values, std::size_t root, const CollectiveTerms& terms);
  void all_gather_direct(ConstBuffer mine, MutableBuffer all, Counts counts,
                         const CollectiveTerms& terms);
  void keep_own(ConstBuffer mine, MutableBuffer all, Counts counts) const;
  Largest agree_on_counts(DataType type, std::size_t turn) const;
  void exchange_direct(ConstBuffer mine, MutableBuffer theirs, Counts from_each, std::size_t turn,
                       const WaitedFor& waited);

  SharedHost& host_;
};

}  // namespace heteroperf
