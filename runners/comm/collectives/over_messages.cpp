// The whole set of collectives over messages: checks of arguments, the choice of an algorithm by
// size, the collectives along a tree of ranks, and those that need no ring and no tree (all_to_all,
// barrier).
//
// The barrier is the dissemination barrier: in round k each rank tells the one 2^k places to its
// right that it has come, and hears the same from its left. After ⌈lg p⌉ rounds every rank has
// heard of all others, directly or through others.
//
// Collectives along a tree are pipelines of segments (segment_pipeline.hpp).
// The vector is cut into segments. A sum of each segment goes up the tree: a rank adds what its
// children send to its own values and passes the sum to its parent; the top holds the sum of all.
// A result goes down the same tree. Several segments are under way at once, so a long vector costs
// about as much as its slowest rank needs for its own messages, and the depth of the tree counts
// once.
//
// An all-reduce goes up and down a binary tree at the same time. A reduce goes up only, a broadcast
// down only. These two use a chain, a tree in which every rank has one child, where there are many
// segments: each link of a chain carries every segment just once.
#include <algorithm>
#include <bit>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/all_reduce.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/segment_pipeline.hpp"
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

constexpr std::size_t tree_window = 4;
constexpr std::size_t binary = 2;

TreePlace place_in(Communicator& group, RankId top, std::size_t arity) {
  std::vector<RankId> members;
  for (int rank = 0; rank < group.size(); ++rank) members.emplace_back(rank);
  return tree_place(members, group.rank(), top, arity);
}

/// A chain beats a binary tree from two segments per rank on.
std::size_t arity_for(std::size_t count, std::size_t segment, int ranks) {
  const std::size_t segments = (count + segment - 1) / segment;
  return segments >= 2 * static_cast<std::size_t>(ranks) ? 1 : binary;
}

std::size_t depth(int ranks) {
  std::size_t levels = 1;
  for (int width = 1; width < ranks; width = 2 * width + 1) ++levels;
  return levels;
}

/// Runs `call`, whose roles and segments are empty, with one role for all segments.
void run_tree(PipelineCall call, const SegmentRole& role, std::size_t segment, Scratch& scratch) {
  const std::size_t count = call.reduction ? call.input.count : call.result.count;
  std::vector<VectorSegment> segments;
  segments.reserve((count + segment - 1) / segment);
  for (std::size_t begin = 0; begin < count; begin += segment) {
    segments.push_back({begin, std::min(segment, count - begin), begin, 0});
  }
  call.segments = segments;
  call.roles = {&role, 1};
  BridgeTraffic none;
  run_pipeline(call, scratch, none);
}

}  // namespace

void all_reduce_tree(const AllReduceCall& call, const PartialSums& sums, std::size_t segment) {
  const TreePlace place = place_in(call.group, RankId(0), binary);
  SegmentRole role;
  role.parent = role.source = place.parent;
  role.children = role.targets = place.children;
  PipelineCall pipeline{call.group};
  pipeline.input = sums.input;
  pipeline.result = call.result;
  pipeline.reduction = call.reduction;
  // A result comes back after a way up and a way down.
  pipeline.window = std::max(tree_window, 2 * depth(call.group.size()));
  run_tree(pipeline, role, segment, call.scratch);
}

/// The time of one collective, whose messages belong together and may have reserved tags.
class MessageCommunicator::Collective {
 public:
  explicit Collective(MessageCommunicator& group)
      : inside_(group.in_collective_), operation_(group) {}

 private:
  InCollective inside_;
  OperationScope operation_;
};

void MessageCommunicator::all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) {
  const Collective collective(*this);
  const AllReduceCall call{*this, input, result, reduction, scratch_, segment_bytes_};
  heteroperf::all_reduce(call, fitting_algorithm(input.bytes(), size()));
}

void MessageCommunicator::reduce(ConstBuffer input, MutableBuffer result, RankId root,
                                 Reduction reduction) {
  const Collective collective(*this);
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < size());
  HETEROPERF_EXPECT(rank() != root || (input.count == result.count && input.type == result.type));
  if (input.count == 0) return;
  if (size() == 1) return convert(input, result);
  if (rank() != root) result = {nullptr, input.count, input.type};
  PipelineCall pipeline{*this};
  pipeline.input = widened(input, reduction, scratch_);
  pipeline.result = result;
  pipeline.reduction = reduction;
  pipeline.window = tree_window;
  const std::size_t segment = elements_in(segment_bytes_, pipeline.input.type);
  const std::size_t arity = arity_for(input.count, segment, size());
  const TreePlace place = place_in(*this, root, arity);
  SegmentRole role;
  role.parent = place.parent;
  role.children = place.children;
  role.keeps_result = rank() == root;
  run_tree(pipeline, role, segment, scratch_);
}

void MessageCommunicator::broadcast(MutableBuffer values, RankId root) {
  const Collective collective(*this);
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < size());
  if (values.count == 0 || size() == 1) return;
  PipelineCall pipeline{*this};
  pipeline.result = values;
  pipeline.window = tree_window;
  const std::size_t segment = elements_in(segment_bytes_, values.type);
  const TreePlace place = place_in(*this, root, arity_for(values.count, segment, size()));
  SegmentRole role;
  role.source = place.parent;
  role.targets = place.children;
  run_tree(pipeline, role, segment, scratch_);
}

void MessageCommunicator::all_gather(ConstBuffer input, MutableBuffer all, Counts counts) {
  const Collective collective(*this);
  check_blocks(*this, counts, input, all);
  if (all.count == 0) return;
  convert(input, part_of(all, block_of(counts, rank().index())));
  if (size() > 1) all_gather_ring(*this, counts, all, segment_bytes_);
}

void MessageCommunicator::reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                                         Reduction reduction) {
  const Collective collective(*this);
  check_blocks(*this, counts, result, all);
  if (all.count == 0) return;
  if (size() == 1) return convert(all, result);
  PartialSums sums{widened(all, reduction, scratch_), result, result, reduction, size()};
  sums.partial.type = sums.input.type;
  reduce_scatter_ring(*this, counts, sums, segment_bytes_, scratch_);
}

void MessageCommunicator::all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                                     Counts from_each) {
  const Collective collective(*this);
  const std::size_t ranks = size();
  const auto self = rank().index();
  check_exchange(*this, input, to_each, result, from_each);
  HETEROPERF_EXPECT(to_each[self] == from_each[self]);
  TransferRing transfers(2 * ranks);
  const auto id = [](std::size_t rank) { return RankId(rank); };
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t from = (self + ranks - step) % ranks;
    transfers.push(receive_some(*this, part_of(result, block_of(from_each, from)), id(from),
                                message_tags::all_to_all));
  }
  // Each step is a permutation of the ranks, so that no rank is everybody's first target.
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t to = (self + step) % ranks;
    transfers.push(
        send_some(*this, part_of(input, block_of(to_each, to)), id(to), message_tags::all_to_all));
  }
  convert(part_of(input, block_of(to_each, self)), part_of(result, block_of(from_each, self)));
  transfers.wait_all();
}

void MessageCommunicator::barrier() {
  const Collective collective(*this);
  const int ranks = size(), self = rank().value();
  for (int distance = 1; distance < ranks; distance *= 2) {
    std::uint8_t in = 0;
    const std::uint8_t out = 1;
    const RankId from((self + ranks - distance) % ranks), to((self + distance) % ranks);
    const auto arriving =
        start_receive(std::span<std::uint8_t>(&in, 1), from, message_tags::barrier);
    start_send(std::span<const std::uint8_t>(&out, 1), to, message_tags::barrier)->wait();
    arriving->wait();
  }
}

}  // namespace heteroperf
