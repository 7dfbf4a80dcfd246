#pragma once

#include "runners/comm/hybrid/lane_plans.hpp"
#include "runners/comm/hybrid/staged_bridge.hpp"
#include "runners/comm/relay/relay_messages.hpp"

namespace heteroperf {

/// Device memory that a rank needs beside its callers' buffers. Grows, never shrinks.
class DeviceScratch {
 public:
  explicit DeviceScratch(BufferMemory& memory) : memory_(memory) {}
  std::byte* reserve(std::size_t bytes);

 private:
  BufferMemory& memory_;
  MemoryBlock block_;
  std::size_t bytes_ = 0;
};

/// A collective over several clusters of devices. Its segments are large, as each is a call of the
/// native library inside the cluster; between clusters they travel in chunks.
///
/// All ranks take the same steps in the same order; in each a rank first ends what is due between
/// clusters, then calls the library. While the library works on a segment, those before it are on
/// their way between clusters. When a rank enters the library nobody waits for anything else that
/// it owes, so waits cannot form a ring although nothing travels from a rank that waits inside it.
struct DevicePipeline {
  Communicator& inside;
  const Routes& routes;
  const LanePlan& plan;
  std::span<const VectorSegment> segments;
  ConstBuffer mine = {};  ///< of sums
  MutableBuffer result = {};

  /// Sums: the native reduce in each cluster, the bridge among tops, the native broadcast or one
  /// message inside.
  void sum(Reduction reduction, StagedBridge& bridge, std::size_t chunk, DeviceScratch& scratch);
  /// Copies from each segment's root to everybody: the native broadcast in its cluster, a relay to
  /// the next one, and so on.
  void copy(RelayMessages& messages, std::size_t clusters, BridgeTraffic& traffic);

 private:
  const SegmentRole& role(std::size_t g) const { return plan.roles[segments[g].role]; }
  ConstBuffer mine_of(std::size_t g) const {
    return mine.part(segments[g].begin, segments[g].count);
  }
  MutableBuffer result_of(std::size_t g) const {
    return result.part(segments[g].result_begin, segments[g].count);
  }
  RankId root_of(std::size_t g) const {
    return RankId(static_cast<std::int32_t>(segments[g].role / plan.lanes.size()));
  }
};

}  // namespace heteroperf
