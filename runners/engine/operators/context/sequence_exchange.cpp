// A part of a sequence is two chunks of it, so what the ranks bring lies rank by rank in two pieces
// each: chunk c < n of n ranks is the first piece of rank c, the others are the second pieces from
// the last rank to the first. The collectives work on the ranks' order; a copy goes between it and
// the order of positions.
#include "runners/engine/operators/context/sequence_exchange.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "runners/engine/operators/tensor_buffer.hpp"

namespace heteroperf {
namespace {

/// Calls visit(chunk of the whole {B, half, …}, the same piece of its rank) for all chunks.
/// `by_rank`: {ranks, B, 2 · half, …}.
template <class Visit>
void for_each_chunk(const at::Tensor& whole, const at::Tensor& by_rank, const Visit& visit) {
  const std::int64_t chunks = 2 * by_rank.size(0), half = by_rank.size(2) / 2;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t rank = std::min(chunk, chunks - 1 - chunk);
    visit(whole.narrow(1, chunk * half, half),
          by_rank.select(0, rank).narrow(1, chunk == rank ? 0 : half, half));
  }
}

std::vector<std::size_t> equal_counts(const Communicator& group, const at::Tensor& part) {
  return std::vector<std::size_t>(group.size(), part.numel());
}

std::vector<std::int64_t> sizes_with(const at::Tensor& tensor, std::int64_t positions) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes[1] = positions;
  return sizes;
}

}  // namespace

at::Tensor SequenceExchange::gather(const at::Tensor& part) const {
  const at::Tensor own = part.contiguous();
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), group_.size());
  const at::Tensor by_rank = at::empty(sizes, own.options());
  HostCopies copies(group_);
  const at::Tensor source = copies.of(own), target = copies.of(by_rank);
  group_.all_gather(buffer_of(source), buffer_of(target), equal_counts(group_, own));
  copies.put_back();
  const at::Tensor whole = at::empty(sizes_with(own, own.size(1) * group_.size()), own.options());
  for_each_chunk(whole, by_rank, [](const at::Tensor& chunk, const at::Tensor& piece) {
    at::Tensor(chunk).copy_(piece);
  });
  return whole;
}

at::Tensor SequenceExchange::sum(const at::Tensor& summand) const {
  const at::Tensor own =
      at::empty(sizes_with(summand, summand.size(1) / group_.size()), summand.options());
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), group_.size());
  const at::Tensor by_rank = at::empty(sizes, own.options());
  for_each_chunk(summand, by_rank, [](const at::Tensor& chunk, const at::Tensor& piece) {
    at::Tensor(piece).copy_(chunk);
  });
  HostCopies copies(group_);
  const at::Tensor source = copies.of(by_rank), target = copies.of(own);
  group_.reduce_scatter(buffer_of(source), buffer_of(target), equal_counts(group_, own),
                        Reduction::sum);
  copies.put_back();
  return own;
}

void SequenceExchange::sum_whole(const at::Tensor& summand) const {
  all_reduce(group_, summand, Reduction::sum);
}

}  // namespace heteroperf
