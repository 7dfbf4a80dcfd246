#pragma once

#include "runners/cluster/link_curve.hpp"

namespace heteroperf {

/// What the three stages of a relay cost: device to host, host to host, host to device.
struct RelayCosts {
  Seconds per_chunk{100e-6};  ///< beside its bytes: starts, polls, latencies of the slowest stage
  BytesPerSecond read{0}, network{0}, write{0};  ///< 0: unknown
};

/// Chunks begin at multiples of this many bytes, so that they hold whole elements of any type.
constexpr std::size_t chunk_unit = 8;

/// The chunk that makes relay_time() least, c* = sqrt(n·α / (Σβ − β_max)), at least 4 KiB and at
/// most n. 256 KiB when a bandwidth is not known.
Bytes best_chunk(Bytes size, const RelayCosts& costs);

/// T(c) = c (Σβ − β_max) + n·β_max + ⌈n/c⌉·α; β are the reciprocal bandwidths. With c = n it is the
/// time of the serial relay, n·Σβ + α. All bandwidths are known.
Seconds relay_time(Bytes size, Bytes chunk, const RelayCosts& costs);

}  // namespace heteroperf
