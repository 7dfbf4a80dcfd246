#pragma once

#include <ATen/core/Tensor.h>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Brings rows of sequences together that context-parallel ranks have parts of (SequencePart), in
/// the order of their positions, and spreads them again. All calls are collective.
class SequenceExchange {
 public:
  /// The ranks with all parts, in the order of these.
  explicit SequenceExchange(Communicator& group) : group_(group) {}

  /// {B, T, …} of all positions from the part {B, T / ranks, …}.
  at::Tensor gather(const at::Tensor& part) const;
  /// This rank's part {B, T / ranks, …} of the sum of {B, T, …} over the ranks.
  at::Tensor sum(const at::Tensor& summand) const;
  /// The sum of what does not depend on positions, in place.
  void sum_whole(const at::Tensor& summand) const;

 private:
  Communicator& group_;
};

}  // namespace heteroperf
