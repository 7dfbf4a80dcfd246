#pragma once

#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/cluster/link_curve.hpp"
#include "runners/cluster/rank_clusters.hpp"
#include "runners/cluster/wire_format.hpp"
#include "runners/comm/algorithm.hpp"

namespace heteroperf {

/// Measured over predicted time of an algorithm at one size.
struct Correction {
  Algorithm algorithm = Algorithm::native;
  Bytes size{0};
  double factor = 1.0;
};

/// What the α-β-γ model knows of a group, all of it measured while every rank takes part, so that
/// shared cores, memory and cards are in the figures. Curves of which nothing is known are empty
/// and cost nothing.
struct CostModel {
  RankClusters clusters;
  /// Per cluster: all its ranks send to the next and receive from the previous one at once.
  std::vector<LinkCurve> inside;
  /// Every cluster's first bridge sends to the next cluster's and receives from the previous one's
  /// at once; empty with one cluster.
  LinkCurve between;
  /// What each of these carries, one way, in many messages of segment size: the rate that
  /// utilisation is told by. 0: not known. Whole large messages in both directions can be slower.
  BytesPerSecond bridge_rate{0};
  /// Summing two blocks of a size, all ranks at once.
  LinkCurve reduction;
  /// The transport's own all-reduce over the whole group.
  LinkCurve native;
  /// Encoding and decoding of one float32 block, by format (bf16, int8).
  LinkCurve bf16_codec, int8_codec;
  /// As inside (of the slowest cluster) and between, but per message of several in flight; as
  /// those when empty.
  LinkCurve inside_stream, between_stream;
  /// Ascending in size for each algorithm; straight between them over the size's logarithm, the
  /// nearest beyond them. Formula and correction make the prediction.
  std::vector<Correction> corrections;
};

/// Of algorithms without segments, and where nothing is known.
constexpr Bytes default_segment{65536};

/// How a call is made.
struct CallShape {
  Bytes bytes{0};
  WireFormat wire = WireFormat::fp32;
  Bytes segment = default_segment;
  friend bool operator==(const CallShape&, const CallShape&) = default;
};

/// The formula alone: runners/comm/README.md, after Thakur, Rabenseifner and Gropp 2005 for the
/// flat ones. leader and split_rail need more than one cluster.
Seconds uncorrected_all_reduce(const CostModel& model, Algorithm algorithm, const CallShape& call);

/// The formula times its correction at this size.
Seconds predict_all_reduce(const CostModel& model, Algorithm algorithm, const CallShape& call);

/// The largest segment that is chosen between clusters without being told: 48 KiB on the wire as
/// float32 or bf16, 24 KiB as int8. From 64 KiB on Open MPI asks the receiver first over TCP, which
/// costs 1.6 times and more where both directions are busy.
Bytes longest_bridge_segment(WireFormat wire);

/// The segment size that predict_all_reduce finds fastest, the smallest of equals: inside one
/// cluster a power of two from 16 KiB to 512 KiB, between clusters up to longest_bridge_segment.
/// default_segment for algorithms without segments.
Bytes best_segment(const CostModel& model, Algorithm algorithm, const CallShape& call);

}  // namespace heteroperf
