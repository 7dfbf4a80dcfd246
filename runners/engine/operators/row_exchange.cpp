// Sequence parallelism: tensor-parallel ranks keep rows of a tensor instead of all of it. A sum
// over the group becomes a reduce-scatter, and an operation that needs the whole tensor gathers it.
//
// The rows of all samples follow one another, and rank i has the i-th stretch of them
// (rows_of_rank()), which may begin in the middle of a sample. Both collectives move what an
// all-reduce of the whole tensor would move in one of its two phases. Tensors on a device go
// through host memory unless the group's transport takes device memory.
#include "runners/engine/operators/row_exchange.hpp"

#include <ATen/ops/empty.h>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"
#include "runners/plan/tensor/row_cuts.hpp"

namespace heteroperf {

at::Tensor RowExchange::own(const at::Tensor& whole) const {
  const at::Tensor rows = whole.contiguous().view({1, -1, whole.size(-1)});
  const RowRangeOfRank range = rows_of_rank(rows.size(1), group_.rank().value(), group_.size());
  return rows.narrow(1, range.first, range.count).clone();
}

// Ranks may have one row more than others.
std::vector<std::size_t> RowExchange::counts(std::int64_t rows, std::int64_t width) const {
  std::vector<std::size_t> elements;
  for (int rank = 0; rank < group_.size(); ++rank) {
    elements.push_back(
        static_cast<std::size_t>(rows_of_rank(rows, rank, group_.size()).count * width));
  }
  return elements;
}

// The ranks' rows follow one another in the whole tensor, so gathering needs no second copy.
at::Tensor RowExchange::gather(const at::Tensor& rows, std::int64_t batch,
                               std::int64_t positions) const {
  const std::int64_t width = rows.size(-1);
  const at::Tensor whole = at::empty({batch, positions, width}, rows.options());
  HostCopies copies(group_);
  const at::Tensor part = copies.of(rows.contiguous()), all = copies.of(whole);
  group_.all_gather(buffer_of(part), buffer_of(all), counts(batch * positions, width));
  copies.put_back();
  return whole;
}

at::Tensor RowExchange::sum(const at::Tensor& summand) const {
  const at::Tensor whole = summand.contiguous();
  const std::int64_t width = whole.size(-1), rows = whole.numel() / width;
  const RowRangeOfRank range = rows_of_rank(rows, group_.rank().value(), group_.size());
  const at::Tensor part = at::empty({1, range.count, width}, whole.options());
  HostCopies copies(group_);
  const at::Tensor all = copies.of(whole), result = copies.of(part);
  group_.reduce_scatter(buffer_of(all), buffer_of(result), counts(rows, width), Reduction::sum);
  copies.put_back();
  return part;
}

}  // namespace heteroperf
