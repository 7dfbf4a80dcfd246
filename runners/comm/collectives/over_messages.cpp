#include "runners/comm/collectives/over_messages.hpp"

#include <bit>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/flat_algorithms.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/transfer_ring.hpp"

namespace heteroperf {
namespace {

/// Up to here the number of steps counts, not the bytes.
constexpr std::size_t doubling_limit_bytes = 8192;
/// Up to here halving's 2·lg p steps beat the ring's 2·(p - 1), where nothing is folded.
constexpr std::size_t halving_limit_bytes = 524288;

Algorithm fitting_algorithm(std::size_t bytes, int ranks) {
  if (bytes <= doubling_limit_bytes) return Algorithm::recursive_doubling;
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(ranks));
  if (power_of_two && bytes <= halving_limit_bytes) return Algorithm::rabenseifner;
  return Algorithm::segmented_ring;
}

}  // namespace

void MessageCollectives::all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) {
  const AllReduceCall call{group_, mine, result, reduction, scratch_, segment_bytes_};
  heteroperf::all_reduce(call, fitting_algorithm(mine.bytes(), group_.size()));
}

void MessageCollectives::reduce(ConstBuffer mine, MutableBuffer result, RankId root,
                                Reduction reduction) {
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < group_.size());
  HETEROPERF_EXPECT(group_.rank() != root ||
                    (mine.count == result.count && mine.type == result.type));
  if (mine.count == 0) return;
  if (group_.size() == 1) return convert(mine, result);
  if (group_.rank() != root) result = {nullptr, mine.count, mine.type};
  reduce_tree({group_, mine, result, reduction, scratch_, segment_bytes_}, root);
}

void MessageCollectives::broadcast(MutableBuffer values, RankId root) {
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < group_.size());
  if (values.count == 0 || group_.size() == 1) return;
  broadcast_tree(group_, values, root, segment_bytes_, scratch_);
}

void MessageCollectives::all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) {
  const auto self = static_cast<std::size_t>(group_.rank().value());
  HETEROPERF_EXPECT(counts.size() == static_cast<std::size_t>(group_.size()));
  HETEROPERF_EXPECT(all.type == mine.type && all.count == total_of(counts));
  HETEROPERF_EXPECT(mine.count == counts[self]);
  if (all.count == 0) return;
  convert(mine, part_of(all, block_of(counts, self)));
  if (group_.size() > 1) all_gather_ring({group_, counts, segment_bytes_, scratch_}, all);
}

void MessageCollectives::reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                                        Reduction reduction) {
  HETEROPERF_EXPECT(counts.size() == static_cast<std::size_t>(group_.size()));
  HETEROPERF_EXPECT(all.type == mine.type && all.count == total_of(counts));
  HETEROPERF_EXPECT(mine.count == counts[static_cast<std::size_t>(group_.rank().value())]);
  if (all.count == 0) return;
  if (group_.size() == 1) return convert(all, mine);
  const DataType type = partial_type(all.type, reduction);
  PartialSums sums{all, mine, mine, reduction, group_.size()};
  sums.partial.type = type;
  if (type != all.type) {
    const MutableBuffer wide(scratch_.slot(scratch_slots::partial, all.count * size_of(type)),
                             all.count, type);
    convert(all, wide);
    sums.mine = wide;
  }
  reduce_scatter_ring({group_, counts, segment_bytes_, scratch_}, sums);
}

void MessageCollectives::all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                                    Counts from_each) {
  const auto ranks = static_cast<std::size_t>(group_.size());
  const auto self = static_cast<std::size_t>(group_.rank().value());
  HETEROPERF_EXPECT(to_each.size() == ranks && from_each.size() == ranks);
  HETEROPERF_EXPECT(mine.type == theirs.type && mine.count == total_of(to_each) &&
                    theirs.count == total_of(from_each) && to_each[self] == from_each[self]);
  TransferRing transfers(2 * ranks);
  const auto peer = [&](std::size_t step, std::size_t sign) {
    return (self + (sign == 0 ? ranks - step : step)) % ranks;
  };
  const auto id = [](std::size_t rank) { return RankId(static_cast<std::int32_t>(rank)); };
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t from = peer(step, 0);
    transfers.push(receive_some(group_, part_of(theirs, block_of(from_each, from)), id(from),
                                message_tags::all_to_all));
  }
  // Each step is a permutation of the ranks: nobody is everybody's first target.
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t to = peer(step, 1);
    transfers.push(
        send_some(group_, part_of(mine, block_of(to_each, to)), id(to), message_tags::all_to_all));
  }
  convert(part_of(mine, block_of(to_each, self)), part_of(theirs, block_of(from_each, self)));
  transfers.wait_all();
}

void MessageCollectives::barrier() {
  const int ranks = group_.size(), self = group_.rank().value();
  for (int distance = 1; distance < ranks; distance *= 2) {
    std::uint8_t in = 0;
    const std::uint8_t out = 1;
    const auto arriving =
        group_.start_receive(MutableBuffer(&in, 1, DataType::u8),
                             RankId((self + ranks - distance) % ranks), message_tags::barrier);
    group_
        .start_send(ConstBuffer(&out, 1, DataType::u8), RankId((self + distance) % ranks),
                    message_tags::barrier)
        ->wait();
    arriving->wait();
  }
}

}  // namespace heteroperf
