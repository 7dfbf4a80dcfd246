#include "runners/comm/relay/relay_chunk.hpp"

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr double least_chunk = 4096, usual_chunk = 256 << 10;

/// Seconds per byte.
struct StageTimes {
  double all, slowest;
};

bool known(const RelayCosts& costs) {
  return costs.read.value() > 0 && costs.network.value() > 0 && costs.write.value() > 0;
}

StageTimes stage_times(const RelayCosts& costs) {
  const double read = 1 / costs.read.value(), network = 1 / costs.network.value();
  const double write = 1 / costs.write.value();
  return {read + network + write, std::max({read, network, write})};
}

}  // namespace

Bytes best_chunk(Bytes size, const RelayCosts& costs) {
  const auto n = static_cast<double>(size.value());
  double chunk = usual_chunk;
  if (known(costs)) {
    const StageTimes times = stage_times(costs);
    chunk = std::sqrt(n * costs.per_chunk.value() / (times.all - times.slowest));
  }
  chunk = std::min(std::max(chunk, least_chunk), std::max(n, 1.0));
  return Bytes(static_cast<std::uint64_t>(std::ceil(chunk / chunk_unit)) * chunk_unit);
}

Seconds relay_time(Bytes size, Bytes chunk, const RelayCosts& costs) {
  HETEROPERF_EXPECT(known(costs) && chunk.value() > 0);
  const StageTimes times = stage_times(costs);
  const auto n = static_cast<double>(size.value());
  const double c = std::min(static_cast<double>(chunk.value()), n);
  const double chunks = n > 0 ? std::ceil(n / c) : 0;
  return Seconds(c * (times.all - times.slowest) + n * times.slowest +
                 chunks * costs.per_chunk.value());
}

}  // namespace heteroperf
