#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/comm/collectives/scratch.hpp"
#include "runners/comm/collectives/transfer_ring.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/wire/wire_codec.hpp"

namespace heteroperf {

/// What crossed between clusters, sent by this rank since the start.
struct BridgeTraffic {
  Bytes logical{0};  ///< before encoding
  Bytes wire{0};
};

/// How the tops of K clusters sum a segment of n bytes.
enum class BridgeScheme {
  everybody,  ///< each sends its own to all others: (K-1)·n, one encoding per contribution
  scatter,    ///< reduce-scatter and all-gather: 2·(K-1)/K·n, without encoding
};

/// everybody for K = 2 and for encoded values, which are then rounded once; else scatter.
BridgeScheme bridge_scheme(std::size_t clusters, WireFormat wire);

/// The tops of a class of segments, one per cluster.
struct BridgeRole {
  std::vector<RankId> tops;              ///< in cluster order; fewer than two: no bridge
  std::size_t self = 0;                  ///< this rank's place among them
  std::optional<std::size_t> collector;  ///< the only one to get the sum

  bool active() const { return tops.size() > 1; }
};

struct BridgeConfig {
  DataType type;
  Reduction reduction;
  WireFormat wire;
  BridgeScheme scheme;
  std::size_t segment;    ///< elements of the largest
  std::size_t in_flight;  ///< segments between contribute() and combine()
  std::size_t tops;       ///< the most of any role
};

/// One rank's end of the bridge. Each function is called for the same segments in the same order.
///
/// With `everybody` every top sums all contributions in cluster order, its own included as the
/// others see it, so that all get the same bits from encoded values too. With `scatter` part k of
/// a segment is summed by the top of cluster k, in cluster order, and handed to the others.
class SegmentBridge {
 public:
  SegmentBridge(Communicator& group, const BridgeConfig& config, Scratch& scratch,
                BridgeTraffic& traffic);

  /// Posts the receives of the next segment. At most in_flight + 1 ahead of combine().
  void expect(const BridgeRole& role, std::size_t count);
  /// Where to write this cluster's sum before contribute().
  void* place();
  void contribute(const BridgeRole& role, std::size_t count);
  /// Sums what has arrived into `result`; false when this rank gets no sum. With `scatter` only
  /// this rank's part is there until collect().
  bool combine(const BridgeRole& role, MutableBuffer result);
  void collect(const BridgeRole& role);
  void finish();

 private:
  bool encoded() const { return config_.wire != WireFormat::fp32; }
  bool scatters(const BridgeRole& role) const {
    return config_.scheme == BridgeScheme::scatter && !role.collector;
  }
  bool receives(const BridgeRole& role) const {
    return !role.collector || *role.collector == role.self;
  }
  std::byte* own_slot(std::size_t ordinal) const;
  std::byte* slot_from(std::size_t ordinal, std::size_t top) const;
  ConstBuffer on_wire(const std::byte* data, std::size_t count) const;
  void send(ConstBuffer values, std::size_t logical_bytes, RankId to, int tag, TransferRing& ring);
  void sum(const BridgeRole& role, std::size_t ordinal, std::size_t skip, MutableBuffer result);

  Communicator& group_;
  BridgeConfig config_;
  BridgeTraffic& traffic_;
  std::size_t slots_, slot_bytes_;
  std::byte* own_;       ///< contributions on their way
  std::byte* arriving_;  ///< those of others
  std::byte* raw_;       ///< one segment before its encoding
  TransferRing receives_, sends_, result_receives_, result_sends_;
  std::size_t expected_ = 0, contributed_ = 0, combined_ = 0, collected_ = 0;
  std::vector<const void*> sources_;
};

}  // namespace heteroperf
