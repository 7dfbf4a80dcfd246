#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runners/cluster/link_curve.hpp"
#include "runners/cluster/rank_clusters.hpp"
#include "runners/comm/collectives/segment_bridge.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/relay/relay.hpp"
#include "runners/comm/selection/selection.hpp"

namespace heteroperf {

struct HybridConfig {
  RankClusters clusters;
  WireFormat wire = WireFormat::fp32;
  /// The algorithm of a size is the rule's that covers it, else the model's. Without either, a
  /// group of several clusters uses its bridges above 8 KiB, and always where a wire format asks
  /// for them; a group of one cluster uses the transport's own all-reduce.
  std::vector<SelectionRule> rules;
  std::optional<CostModel> model;  ///< equal on all ranks
  /// The bytes of a segment on bridges, before encoding. 0: by the model, but at most 48 KiB
  /// (96 KiB when encoded).
  Bytes segment{0};
  int window = 4;  ///< segments in flight per bridge; more where the model's link holds more
  /// For groups on devices: slots, chunk (`segment` where that is given) and the deadline of copies
  /// between device and host. The other members are not used.
  RelayConfig staging;
};

/// A group of several clusters. What crosses between clusters travels over the bridges, in segments
/// of which several are under way at once. Rank numbers are the world's; the ranks of a cluster
/// need not be contiguous. With one cluster it is `world` with a choice of algorithms.
///
/// On hosts the messages of `world` carry everything. Where `inside` has its buffers on a device
/// (nccl), so has the group: `inside` is then the native library of this rank's cluster and does
/// the cluster's part; `world`, over the hosts, carries what crosses, copied through slots of
/// pinned memory a chunk at a time; algorithms that use no bridges take the whole vector to the
/// hosts and back. Models are not used.
///
/// Wire formats apply to float32 sums and averages that cross a bridge: one encoding per hop, all
/// sums in float32. Every rank gets the same bits.
class HybridCommunicator : public Communicator {
 public:
  virtual const RankClusters& clusters() const = 0;
  /// The choice for an all-reduce of this size; its wire is the format that really travels.
  virtual Choice choice(Bytes size, DataType type, Reduction reduction = Reduction::sum) const = 0;
  virtual BridgeTraffic traffic() const = 0;
};

/// `inside` may be null; else it has the ranks of this rank's cluster in ascending order, and is
/// used where its buffers are on a device. The clusters partition the ranks of `world`, which is in
/// host memory, and each has bridges of its own. Collective.
std::unique_ptr<HybridCommunicator> make_hybrid_communicator(
    std::unique_ptr<Communicator> world, HybridConfig config,
    std::unique_ptr<Communicator> inside = nullptr);

}  // namespace heteroperf
