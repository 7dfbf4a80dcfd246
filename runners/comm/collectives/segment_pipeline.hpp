#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runners/comm/collectives/partial_sums.hpp"
#include "runners/comm/collectives/segment_bridge.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// One rank's part in a class of segments. Sums go up a tree to its top; where there are several
/// clusters each has its tree, and the tops exchange over the bridge; results go down the trees.
struct SegmentRole {
  std::vector<RankId> children;  ///< partial sums come from them
  std::optional<RankId> parent;  ///< this rank's partial sum goes to it
  std::optional<RankId> source;  ///< the result comes from it
  std::vector<RankId> targets;   ///< the result goes to them; those in other clusters come first
  std::size_t crossing = 0;      ///< the number of targets in other clusters
  BridgeRole bridge;             ///< for the top of a tree
  bool keeps_result = true;      ///< false: this rank only passes the result on
  /// Clusters of devices have these in place of a tree: the rank in the cluster's native library to
  /// which its reduce goes, and from which its broadcast comes. run_pipeline() does not use them.
  std::optional<RankId> inside_up, inside_down;
};

/// A part of a vector. The segments of a pipeline are parts that travel as one message.
struct VectorSegment {
  std::size_t begin = 0, count = 0;  ///< elements of the input
  std::size_t result_begin = 0;      ///< where the segment begins in the result
  std::size_t role = 0;              ///< index into the roles
};

struct PipelineCall {
  Communicator& group;
  ConstBuffer input = {};  ///< in the partial type; unused without a reduction
  MutableBuffer result = {};
  std::optional<Reduction> reduction = std::nullopt;  ///< none: results only go down
  WireFormat wire = WireFormat::fp32;
  BridgeScheme scheme = BridgeScheme::everybody;
  std::size_t clusters = 1;
  std::size_t window = 4;                        ///< segments in flight on every bridge
  std::size_t lanes = 1;                         ///< bridges of one cluster at work at once
  std::span<const VectorSegment> segments = {};  ///< in the same order on every rank
  std::span<const SegmentRole> roles = {};
};

/// Runs the segments through the stages at once: while one segment is summed inside a cluster,
/// those before it are on the wire, and those before them on their way down. segment_pipeline.cpp
/// explains the order. Throws what the waits of the group throw.
void run_pipeline(const PipelineCall& call, Scratch& scratch, BridgeTraffic& traffic);

/// A rank's place in a tree over `members` in which each rank has up to `arity` children: the top
/// comes first, then the other members in their order.
struct TreePlace {
  std::optional<RankId> parent;
  std::vector<RankId> children;
};
TreePlace tree_place(std::span<const RankId> members, RankId self, RankId top, std::size_t arity);

/// The arity of the trees inside clusters. A cluster of up to arity + 1 ranks is a star, whose top
/// sums all values in one pass.
constexpr std::size_t inside_arity = 4;

}  // namespace heteroperf
