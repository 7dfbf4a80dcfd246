// The whole set of collectives over messages: checks of arguments, the choice of an algorithm by
// size, and the two collectives that need no ring and no tree (all_to_all, barrier).
//
// The barrier is the dissemination barrier: in round k each rank tells the one 2^k places to its
// right that it has come, and hears the same from its left. After ⌈lg p⌉ rounds every rank has
// heard of all others, directly or through others.

#include <bit>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/all_reduce.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/transfer_ring.hpp"

namespace heteroperf {
namespace {

/// Up to this size the number of steps counts, not the bytes.
constexpr std::size_t doubling_limit_bytes = 8192;
/// Up to this size halving's 2·lg p steps beat the ring's 2·(p - 1), where nothing is folded.
constexpr std::size_t halving_limit_bytes = 524288;

Algorithm fitting_algorithm(std::size_t bytes, int ranks) {
  if (bytes <= doubling_limit_bytes) return Algorithm::recursive_doubling;
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(ranks));
  if (power_of_two && bytes <= halving_limit_bytes) return Algorithm::rabenseifner;
  return Algorithm::segmented_ring;
}

}  // namespace

void MessageCollectives::all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) {
  const AllReduceCall call{group_, input, result, reduction, scratch_, segment_bytes_};
  heteroperf::all_reduce(call, fitting_algorithm(input.bytes(), group_.size()));
}

void MessageCollectives::reduce(ConstBuffer input, MutableBuffer result, RankId root,
                                Reduction reduction) {
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < group_.size());
  HETEROPERF_EXPECT(group_.rank() != root ||
                    (input.count == result.count && input.type == result.type));
  if (input.count == 0) return;
  if (group_.size() == 1) return convert(input, result);
  if (group_.rank() != root) result = {nullptr, input.count, input.type};
  reduce_tree({group_, input, result, reduction, scratch_, segment_bytes_}, root);
}

void MessageCollectives::broadcast(MutableBuffer values, RankId root) {
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < group_.size());
  if (values.count == 0 || group_.size() == 1) return;
  broadcast_tree(group_, values, root, segment_bytes_, scratch_);
}

void MessageCollectives::all_gather(ConstBuffer input, MutableBuffer all, Counts counts) {
  const auto self = group_.rank().index();
  HETEROPERF_EXPECT(std::ssize(counts) == group_.size());
  HETEROPERF_EXPECT(all.type == input.type && all.count == total_of(counts));
  HETEROPERF_EXPECT(input.count == counts[self]);
  if (all.count == 0) return;
  convert(input, part_of(all, block_of(counts, self)));
  if (group_.size() > 1) all_gather_ring({group_, counts, segment_bytes_, scratch_}, all);
}

void MessageCollectives::reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                                        Reduction reduction) {
  HETEROPERF_EXPECT(std::ssize(counts) == group_.size());
  HETEROPERF_EXPECT(all.type == result.type && all.count == total_of(counts));
  HETEROPERF_EXPECT(result.count == counts[group_.rank().index()]);
  if (all.count == 0) return;
  if (group_.size() == 1) return convert(all, result);
  PartialSums sums{widened(all, reduction, scratch_), result, result, reduction, group_.size()};
  sums.partial.type = sums.input.type;
  reduce_scatter_ring({group_, counts, segment_bytes_, scratch_}, sums);
}

void MessageCollectives::all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                                    Counts from_each) {
  const std::size_t ranks = group_.size();
  const auto self = group_.rank().index();
  HETEROPERF_EXPECT(to_each.size() == ranks && from_each.size() == ranks);
  HETEROPERF_EXPECT(input.type == result.type && input.count == total_of(to_each) &&
                    result.count == total_of(from_each) && to_each[self] == from_each[self]);
  TransferRing transfers(2 * ranks);
  const auto id = [](std::size_t rank) { return RankId(rank); };
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t from = (self + ranks - step) % ranks;
    transfers.push(receive_some(group_, part_of(result, block_of(from_each, from)), id(from),
                                message_tags::all_to_all));
  }
  // Each step is a permutation of the ranks, so that no rank is everybody's first target.
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t to = (self + step) % ranks;
    transfers.push(
        send_some(group_, part_of(input, block_of(to_each, to)), id(to), message_tags::all_to_all));
  }
  convert(part_of(input, block_of(to_each, self)), part_of(result, block_of(from_each, self)));
  transfers.wait_all();
}

void MessageCollectives::barrier() {
  const int ranks = group_.size(), self = group_.rank().value();
  for (int distance = 1; distance < ranks; distance *= 2) {
    std::uint8_t in = 0;
    const std::uint8_t out = 1;
    const RankId from((self + ranks - distance) % ranks), to((self + distance) % ranks);
    const auto arriving =
        group_.start_receive(std::span<std::uint8_t>(&in, 1), from, message_tags::barrier);
    group_.start_send(std::span<const std::uint8_t>(&out, 1), to, message_tags::barrier)->wait();
    arriving->wait();
  }
}

}  // namespace heteroperf
