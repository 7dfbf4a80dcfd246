#include "runners/plan/search/random_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace heteroperf {
namespace {

/// Draws that do not depend on the standard library's distributions.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  int between(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  double scale(double least, double most) {
    const double part = static_cast<double>(random_() >> 11) * 0x1p-53;
    return least * std::pow(most / least, part);
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace

Cluster random_cluster(std::uint64_t seed, const RandomClusterRange& range) {
  Draw draw(seed);
  Cluster cluster;
  cluster.name = fmt::format("random mixed cluster {}", seed);
  const int classes = draw.between(range.least_classes, range.most_classes);
  int open = draw.between(range.least_devices, range.most_devices);
  for (int c = 0; c < classes; ++c) {
    const int per_node = draw.between(0, 1) == 0 ? 4 : 8;
    const int share = c + 1 == classes ? open : draw.between(open / (2 * (classes - c)), open / 2);
    const int devices = std::max(1, share / per_node) * per_node;
    open = std::max(0, open - devices);
    DeviceClass device;
    device.name = fmt::format("class_{}", c);
    device.kind = DeviceKind::paced;
    device.count = devices;
    device.memory =
        Bytes(static_cast<std::uint64_t>(draw.scale(range.least_memory, range.most_memory)));
    const double rate = draw.scale(range.slowest_rate, range.speed_spread * range.slowest_rate);
    device.rates["fp32"] = OpsPerSecond(rate);
    device.rates["bf16"] = OpsPerSecond(rate);
    cluster.efficiency.push_back(
        {device.name, "memory", "stream", "fp32", OpsPerSecond(draw.scale(0.8e12, 3e12)), "drawn"});
    for (int d = 0; d < devices; ++d) {
      cluster.ranks.push_back(
          {device.name, fmt::format("{}-{:04}", device.name, d / per_node), device.name, {}});
    }
    for (int other = 0; other <= c; ++other) {
      const BytesPerSecond bandwidth(draw.scale(range.least_bandwidth, range.most_bandwidth));
      cluster.links.push_back({fmt::format("class_{}", other),
                               device.name,
                               {},
                               LinkCurve(Seconds(range.latency_s), bandwidth),
                               "drawn"});
    }
    cluster.classes.push_back(std::move(device));
  }
  return cluster;
}

std::int64_t random_batch(std::uint64_t seed, int devices) {
  // Another stream than the cluster's.
  return devices * static_cast<std::int64_t>(Draw(seed ^ 0x9e3779b97f4a7c15u).scale(16, 128));
}

}  // namespace heteroperf
