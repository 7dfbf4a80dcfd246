#include "runners/engine/operators/row_exchange.hpp"

#include <ATen/ops/empty.h>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/host_copies.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"
#include "runners/plan/row_cuts.hpp"

namespace heteroperf {

at::Tensor RowExchange::own(const at::Tensor& whole) const {
  const at::Tensor rows = whole.contiguous().view({1, -1, whole.size(-1)});
  const RowRangeOfRank mine = rows_of_rank(rows.size(1), group_.rank().value(), group_.size());
  return rows.narrow(1, mine.first, mine.count).clone();
}

std::vector<std::size_t> RowExchange::counts(std::int64_t rows, std::int64_t width) const {
  std::vector<std::size_t> elements;
  for (int rank = 0; rank < group_.size(); ++rank) {
    elements.push_back(
        static_cast<std::size_t>(rows_of_rank(rows, rank, group_.size()).count * width));
  }
  return elements;
}

at::Tensor RowExchange::gather(const at::Tensor& own, std::int64_t batch,
                               std::int64_t positions) const {
  const std::int64_t width = own.size(-1);
  const at::Tensor whole = at::empty({batch, positions, width}, own.options());
  HostCopies copies(group_);
  const at::Tensor mine = copies.of(own.contiguous()), all = copies.of(whole);
  group_.all_gather(buffer_of(mine), buffer_of(all), counts(batch * positions, width));
  copies.put_back();
  return whole;
}

at::Tensor RowExchange::sum(const at::Tensor& summand) const {
  const at::Tensor whole = summand.contiguous();
  const std::int64_t width = whole.size(-1), rows = whole.numel() / width;
  const RowRangeOfRank mine = rows_of_rank(rows, group_.rank().value(), group_.size());
  const at::Tensor own = at::empty({1, mine.count, width}, whole.options());
  HostCopies copies(group_);
  const at::Tensor all = copies.of(whole), result = copies.of(own);
  group_.reduce_scatter(buffer_of(all), buffer_of(result), counts(rows, width), Reduction::sum);
  copies.put_back();
  return own;
}

}  // namespace heteroperf
