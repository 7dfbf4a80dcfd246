#include <algorithm>

#include "runners/comm/collectives/flat_algorithms.hpp"
#include "runners/comm/collectives/segment_pipeline.hpp"

namespace heteroperf {

namespace {

std::vector<VectorSegment> cut(std::size_t count, std::size_t segment) {
  std::vector<VectorSegment> segments;
  segments.reserve((count + segment - 1) / segment);
  for (std::size_t begin = 0; begin < count; begin += segment) {
    segments.push_back({begin, std::min(segment, count - begin), begin, 0});
  }
  return segments;
}

TreePlace flat_tree(Communicator& group, RankId top, std::size_t arity) {
  std::vector<RankId> everybody;
  for (int rank = 0; rank < group.size(); ++rank) everybody.emplace_back(rank);
  return tree_place(everybody, group.rank(), top, arity);
}

constexpr std::size_t tree_window = 4;
constexpr std::size_t binary = 2;

/// Segments from which on a chain beats a binary tree: its links carry everything only once.
std::size_t arity_for(std::size_t segments, int ranks) {
  return segments >= 2 * static_cast<std::size_t>(ranks) ? 1 : binary;
}

std::size_t depth(int ranks) {
  std::size_t levels = 1;
  for (int width = 1; width < ranks; width = 2 * width + 1) ++levels;
  return levels;
}

struct TreeCall {
  Communicator& group;
  ConstBuffer mine;
  MutableBuffer result;
  std::optional<Reduction> reduction;
  std::size_t segment;
  std::size_t window;
  Scratch& scratch;
};

void run_tree(const TreeCall& tree, const SegmentRole& role, std::size_t count) {
  const std::vector<VectorSegment> segments = cut(count, tree.segment);
  PipelineCall call{tree.group};
  call.mine = tree.mine;
  call.result = tree.result;
  call.reduction = tree.reduction;
  call.window = tree.window;
  call.segments = segments;
  call.roles = {&role, 1};
  BridgeTraffic none;
  run_pipeline(call, tree.scratch, none);
}

}  // namespace

void all_reduce_tree(const AllReduceCall& call, const PartialSums& sums, std::size_t segment) {
  const TreePlace place = flat_tree(call.group, RankId(0), binary);
  SegmentRole role;
  role.parent = role.source = place.parent;
  role.children = role.targets = place.children;
  // A result comes back after a way up and a way down.
  const std::size_t in_flight = std::max(tree_window, 2 * depth(call.group.size()));
  run_tree({call.group, sums.mine, call.result, call.reduction, segment, in_flight, call.scratch},
           role, call.mine.count);
}

void reduce_tree(const AllReduceCall& call, RankId root) {
  const bool is_root = call.group.rank() == root;
  const DataType type = partial_type(call.mine.type, call.reduction);
  PartialSums sums{call.mine, call.result, call.result, call.reduction, call.group.size()};
  if (type != call.mine.type) {
    const MutableBuffer wide(
        call.scratch.slot(scratch_slots::partial, call.mine.count * size_of(type)), call.mine.count,
        type);
    convert(call.mine, wide);
    sums.mine = wide;
  }
  const std::size_t segment = std::max<std::size_t>(1, call.segment_bytes / size_of(type));
  const std::size_t segments = (call.mine.count + segment - 1) / segment;
  const TreePlace place = flat_tree(call.group, root, arity_for(segments, call.group.size()));
  SegmentRole role;
  role.parent = place.parent;
  role.children = place.children;
  role.keeps = is_root ? SegmentRole::Keeps::result : SegmentRole::Keeps::nothing;
  run_tree({call.group, sums.mine, call.result, call.reduction, segment, tree_window, call.scratch},
           role, call.mine.count);
}

void broadcast_tree(Communicator& group, MutableBuffer values, RankId root,
                    std::size_t segment_bytes, Scratch& scratch) {
  const std::size_t segment = std::max<std::size_t>(1, segment_bytes / size_of(values.type));
  const std::size_t segments = (values.count + segment - 1) / segment;
  const TreePlace place = flat_tree(group, root, arity_for(segments, group.size()));
  SegmentRole role;
  role.source = place.parent;
  role.targets = place.children;
  run_tree({group, values, values, std::nullopt, segment, tree_window, scratch}, role,
           values.count);
}

}  // namespace heteroperf
