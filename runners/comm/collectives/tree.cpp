// Collectives along a tree of ranks, as pipelines of segments (segment_pipeline.hpp).
//
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

#include "runners/comm/collectives/all_reduce.hpp"
#include "runners/comm/collectives/segment_pipeline.hpp"

namespace heteroperf {
namespace {

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

void reduce_tree(const AllReduceCall& call, RankId root) {
  PipelineCall pipeline{call.group};
  pipeline.input = widened(call.input, call.reduction, call.scratch);
  pipeline.result = call.result;
  pipeline.reduction = call.reduction;
  pipeline.window = tree_window;
  const std::size_t segment =
      std::max<std::size_t>(1, call.segment_bytes / size_of(pipeline.input.type));
  const std::size_t arity = arity_for(call.input.count, segment, call.group.size());
  const TreePlace place = place_in(call.group, root, arity);
  SegmentRole role;
  role.parent = place.parent;
  role.children = place.children;
  role.keeps_result = call.group.rank() == root;
  run_tree(pipeline, role, segment, call.scratch);
}

void broadcast_tree(Communicator& group, MutableBuffer values, RankId root,
                    std::size_t segment_bytes, Scratch& scratch) {
  PipelineCall pipeline{group};
  pipeline.result = values;
  pipeline.window = tree_window;
  const std::size_t segment = std::max<std::size_t>(1, segment_bytes / size_of(values.type));
  const TreePlace place = place_in(group, root, arity_for(values.count, segment, group.size()));
  SegmentRole role;
  role.source = place.parent;
  role.targets = place.children;
  run_tree(pipeline, role, segment, scratch);
}

}  // namespace heteroperf
