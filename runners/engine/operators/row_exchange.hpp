#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Tensors {B, positions, width} of a tensor-parallel group, whole or by rows: the rows of all
/// samples one after another, of which each rank has its part as {1, rows, width}.
class RowExchange {
 public:
  explicit RowExchange(Communicator& group) : group_(group) {}

  /// This rank's rows of a whole tensor, in memory of their own.
  at::Tensor own(const at::Tensor& whole) const;
  /// The whole of {batch, positions, …}. Collective.
  at::Tensor gather(const at::Tensor& rows, std::int64_t batch, std::int64_t positions) const;
  /// This rank's rows of the sum over the group. Collective.
  at::Tensor sum(const at::Tensor& summand) const;

 private:
  /// Elements by rank.
  std::vector<std::size_t> counts(std::int64_t rows, std::int64_t width) const;

  Communicator& group_;
};

}  // namespace heteroperf
