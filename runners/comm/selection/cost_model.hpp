#pragma once

#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/cluster/link_curve.hpp"
#include "runners/cluster/rank_clusters.hpp"
#include "runners/comm/algorithm.hpp"

namespace heteroperf {

/// The measured time of an algorithm at one size over the formula's.
struct Correction {
  Algorithm algorithm = Algorithm::native;
  Bytes size{0};
  double factor = 1.0;
};

/// The figures of the α-β-γ model of a group. All of them are measured while every rank takes part,
/// so that shared cores, memory and cards are in them. A curve of which nothing is known is empty
/// and costs nothing.
struct CostModel {
  RankClusters clusters;
  /// By cluster: a message, while all its ranks send to the next rank and receive from the previous
  /// one at once.
  std::vector<LinkCurve> inside;
  /// The same in the ring of all clusters' first bridges; empty with one cluster.
  LinkCurve between;
  /// The rate of such a bridge, one way, in many messages of segment size; utilisation is told by
  /// it. 0: not known. Whole large messages in both directions can be slower.
  BytesPerSecond bridge_rate{0};
  /// The sum of two blocks, made by all ranks at once.
  LinkCurve reduction;
  /// The transport's own all-reduce over the whole group.
  LinkCurve native;
  /// The encoding and decoding of one float32 block.
  LinkCurve bf16_codec, int8_codec;
  /// `inside` (of the slowest cluster) and `between` per message while several are in flight; where
  /// these are empty, the others stand for them.
  LinkCurve inside_stream, between_stream;
  /// Ascending in size for each algorithm. The factor between two sizes is a straight line over the
  /// size's logarithm; beyond them it is the nearest one. Formula × factor is the prediction.
  std::vector<Correction> corrections;
};

/// The segment of algorithms without segments, and where nothing is known.
constexpr Bytes default_segment{65536};

/// The size, wire format and segment of a call.
struct CallShape {
  Bytes bytes{0};
  WireFormat wire = WireFormat::fp32;
  Bytes segment = default_segment;
  friend bool operator==(const CallShape&, const CallShape&) = default;
};

/// Returns the formula's time. runners/comm/README.md has the formulas; those of the flat
/// algorithms are from Thakur, Rabenseifner and Gropp 2005. leader and split_rail need more than
/// one cluster.
Seconds uncorrected_all_reduce(const CostModel& model, Algorithm algorithm, const CallShape& call);

/// Returns the formula's time multiplied by the correction at this size.
Seconds predict_all_reduce(const CostModel& model, Algorithm algorithm, const CallShape& call);

/// Returns the largest segment that is chosen between clusters without being told: 48 KiB on the
/// wire as float32 or bf16, 24 KiB as int8. From 64 KiB on Open MPI asks the receiver first over
/// TCP, which takes 1.6 times as long and more where both directions are busy.
Bytes longest_bridge_segment(WireFormat wire);

/// Returns the segment size that the formula finds fastest, the smallest of equals: inside one
/// cluster a power of two from 16 KiB to 512 KiB, between clusters up to longest_bridge_segment;
/// default_segment for algorithms without segments.
Bytes best_segment(const CostModel& model, Algorithm algorithm, const CallShape& call);

}  // namespace heteroperf
