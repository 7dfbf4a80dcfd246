#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/comm/collectives/partial_sums.hpp"
#include "runners/comm/collectives/transfer_ring.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/wire/wire_codec.hpp"

namespace heteroperf {

// Several clusters sum a vector. Inside each cluster the sum of a segment goes up a tree of ranks;
// the rank at the *top* holds the cluster's sum, its *contribution*. The tops of all clusters, one
// per cluster, exchange contributions over the *bridge* between the clusters. With a compressed
// wire format a contribution is *encoded* before it travels.

/// The bytes that one rank has sent to other clusters since the start.
struct BridgeTraffic {
  Bytes logical{0};  ///< before encoding
  Bytes wire{0};

  void add(std::size_t logical_bytes, std::size_t sent_bytes) {
    logical += Bytes(logical_bytes);
    wire += Bytes(sent_bytes);
  }
};

/// The ways in which the tops of K clusters sum a segment of n bytes.
enum class BridgeScheme {
  everybody,  ///< each sends its contribution to all others: (K-1)·n, encoded once
  scatter,    ///< reduce-scatter and all-gather: 2·(K-1)/K·n, never encoded
};

/// `everybody` for K = 2 and for encoded contributions, which are then rounded once; else
/// `scatter`.
BridgeScheme bridge_scheme(std::size_t clusters, WireFormat wire);

/// One rank's part in the bridge of a class of segments.
struct BridgeRole {
  std::vector<RankId> tops;              ///< in cluster order; fewer than two: no bridge
  std::size_t self = 0;                  ///< this rank's place among them
  std::optional<std::size_t> collector;  ///< the only top that gets the sum; none: all get it

  bool active() const { return tops.size() > 1; }
  bool gets_sum() const { return !collector || *collector == self; }
};

/// The segments of one collective and how they cross the bridge.
struct BridgeConfig {
  DataType type;
  Reduction reduction;
  WireFormat wire;
  BridgeScheme scheme;
  std::size_t segment;        ///< elements of the largest segment
  std::size_t tops;           ///< the most tops of any role
  std::size_t in_flight = 1;  ///< segments between contribute() and combine()

  bool encoded() const { return wire != WireFormat::fp32; }
  /// A contribution of `count` elements as a message.
  ConstBuffer on_wire(const std::byte* data, std::size_t count) const;
  /// result = the sum of the contributions, each as it was on the wire; an average is divided by
  /// `ranks`. The order of the sources is the order of adding.
  void add(std::span<const void* const> contributions, MutableBuffer result, int ranks) const;
};

/// One top's end of the bridge, in host memory. Each function is called for the same segments in
/// the same order; a call without an effect on this rank is made all the same.
///
/// With `everybody` every top sums all contributions in cluster order, its own included as the
/// others see it, so that all get the same bits from encoded contributions too. With `scatter` part
/// k of a segment is summed by the top of cluster k, in cluster order, and handed to the others.
class SegmentBridge {
 public:
  SegmentBridge(Communicator& group, const BridgeConfig& config, Scratch& scratch,
                BridgeTraffic& traffic);

  /// Posts the receives of the next segment, at most in_flight + 1 segments ahead of combine().
  void expect(const BridgeRole& role, std::size_t count);
  /// Returns the place for the next contribution, which is written there before contribute().
  void* place();
  /// Sends the contribution at place(), of `count` elements.
  void contribute(const BridgeRole& role, std::size_t count);
  /// Sums the arrived contributions into `result`; returns false when this rank gets no sum. With
  /// `scatter` the result is complete only after collect().
  bool combine(const BridgeRole& role, MutableBuffer result);
  /// Waits for the parts that other tops have summed.
  void collect(const BridgeRole& role);
  /// Waits until everything that was sent has left.
  void finish();

 private:
  bool scatters(const BridgeRole& role) const {
    return config_.scheme == BridgeScheme::scatter && !role.collector;
  }
  std::byte* local_slot(std::size_t ordinal) const {
    return local_ + ordinal % slots_ * slot_bytes_;
  }
  std::byte* slot_from(std::size_t ordinal, std::size_t top) const {
    return arriving_ + (ordinal % slots_ * config_.tops + top) * slot_bytes_;
  }
  /// Waits for the transfers of the `ordinal`th segment, one per top.
  void wait(TransferRing& ring, std::size_t ordinal) {
    for (std::size_t top = 0; top < config_.tops; ++top) ring.wait(ordinal * config_.tops + top);
  }
  /// Pushes start(top) for every other top of the role, and nothing in the places of the rest.
  template <class Start>
  void push_for_tops(const BridgeRole& role, TransferRing& ring, Start start);
  std::unique_ptr<Transfer> send(ConstBuffer values, std::size_t logical_bytes, RankId to, int tag);
  void sum(const BridgeRole& role, std::size_t ordinal, std::size_t skipped, MutableBuffer result);

  Communicator& group_;
  BridgeConfig config_;
  BridgeTraffic& traffic_;
  std::size_t slots_, slot_bytes_;
  std::byte* local_;     ///< contributions of this cluster on their way
  std::byte* arriving_;  ///< contributions of other clusters
  std::byte* raw_;       ///< one segment before its encoding
  TransferRing receives_, sends_, result_receives_, result_sends_;
  std::size_t expected_ = 0, contributed_ = 0, combined_ = 0, collected_ = 0;
  std::vector<const void*> sources_;
};

}  // namespace heteroperf
