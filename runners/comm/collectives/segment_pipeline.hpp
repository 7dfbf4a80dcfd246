#pragma once

#include <optional>
#include <vector>

#include "runners/comm/collectives/scratch.hpp"
#include "runners/comm/collectives/segment_bridge.hpp"
#include "runners/comm/collectives/transfer_ring.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// What this rank does with a class of segments. Sums go up a tree to its top; where there are
/// several clusters each has its tree, and the tops exchange over the bridge; results go down.
struct SegmentRole {
  std::vector<RankId> children;  ///< partial sums come from
  std::optional<RankId> parent;  ///< gets this rank's partial sum
  std::optional<RankId> source;  ///< the result comes from
  std::vector<RankId> targets;   ///< the result goes to; those of other clusters first
  std::size_t crossing = 0;      ///< targets in other clusters
  BridgeRole bridge;             ///< of tops
  /// Whether this rank wants the result, or only passes it on.
  enum class Keeps { result, nothing } keeps = Keeps::result;
  /// In place of children and parent, or of the cluster's own source and targets: the rank in
  /// `inside` to which its reduce, from which its broadcast goes.
  std::optional<RankId> inside_up, inside_down;
};

/// A part of the vector that travels as one message.
struct VectorSegment {
  std::size_t begin = 0, count = 0;  ///< elements of `mine`
  std::size_t result_begin = 0;      ///< where it begins in `result`
  std::size_t role = 0;              ///< index into the roles
};

struct PipelineCall {
  Communicator& group;
  Communicator* inside = nullptr;  ///< for roles with inside_up or inside_down
  ConstBuffer mine = {};           ///< of the partial type; unused without a reduction
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

/// Runs the segments through the stages at once: while one is summed inside, those before it are
/// on the wire, and those before them on their way down.
///
/// Every rank takes all stages in one fixed order and posts receives ahead: in step i it sums
/// segment i, ends the bridge's part of i - D, and passes down i - D', where the distances are
/// such that `window` segments are on every wire. Waits are for earlier steps of other ranks
/// only, so they cannot form a ring. Between the waits nothing is polled: sends and receives that
/// were started make progress whenever the rank waits for any of them.
///
/// Memory: some slots of a segment each, however long the vector is.
void run_pipeline(const PipelineCall& call, Scratch& scratch, BridgeTraffic& traffic);

/// A rank's place in a tree over `members` in which each has up to `arity` children: the top,
/// then the others in order.
struct TreePlace {
  std::optional<RankId> parent;
  std::vector<RankId> children;
};
/// Of the trees inside clusters: up to arity + 1 ranks a cluster is a star, whose top sums all in
/// one pass.
constexpr std::size_t inside_arity = 4;

TreePlace tree_place(std::span<const RankId> members, RankId self, RankId top, std::size_t arity);

}  // namespace heteroperf
