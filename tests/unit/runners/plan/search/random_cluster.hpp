#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>

#include "runners/cluster/cluster.hpp"

namespace heteroperf {

/// Draws mixed clusters of nodes with 4 or 8 devices: counts, rates, memory and links are spread
/// evenly on a logarithmic scale. A seed gives the same cluster on every machine.
struct RandomCluster {
  int least_classes = 1, most_classes = 4;
  int least_devices = 64, most_devices = 512;  ///< of all classes together

  Cluster draw(std::uint64_t seed) const {
    Draws draws{std::mt19937_64(seed)};
    Cluster cluster;
    cluster.name = "random mixed cluster " + std::to_string(seed);
    const int classes = draws.count(least_classes, most_classes);
    int left = draws.count(least_devices, most_devices);
    for (int c = 0; c < classes; ++c) {
      const int node = draws.count(0, 1) == 0 ? 4 : 8;
      const int wish = c + 1 == classes ? left : draws.count(left / (2 * (classes - c)), left / 2);
      const int devices = node * std::max(1, wish / node);
      left = std::max(0, left - devices);
      add_class(cluster, c, devices, node, draws);
    }
    return cluster;
  }

  /// Samples of a step: 16 to 128 per device, by another stream than the cluster's.
  static std::int64_t batch(std::uint64_t seed, int devices) {
    Draws draws{std::mt19937_64(seed ^ 0x9e3779b97f4a7c15u)};
    return devices * static_cast<std::int64_t>(draws.spread(16, 128));
  }

 private:
  /// Numbers that do not depend on the standard library's distributions.
  struct Draws {
    std::mt19937_64 random;
    int count(int least, int most) {
      return least + static_cast<int>(random() % static_cast<std::uint64_t>(most - least + 1));
    }
    double spread(double least, double most) {
      return least * std::pow(most / least, static_cast<double>(random() >> 11) * 0x1p-53);
    }
  };

  static void add_class(Cluster& cluster, int index, int devices, int node, Draws& draws) {
    const std::string name = "class_" + std::to_string(index);
    DeviceClass& drawn = cluster.classes.emplace_back();
    drawn.name = name;
    drawn.kind = DeviceKind::paced;
    drawn.count = devices;
    drawn.memory = Bytes(static_cast<std::uint64_t>(draws.spread(16e9, 96e9)));
    drawn.rates["fp32"] = drawn.rates["bf16"] = OpsPerSecond(draws.spread(60e12, 240e12));
    const OpsPerSecond stream(draws.spread(0.8e12, 3e12));
    cluster.efficiency.push_back({name, "memory", "stream", "fp32", stream, "drawn"});
    for (int d = 0; d < devices; ++d) {
      const std::string digits = std::to_string(10000 + d / node).substr(1);
      cluster.ranks.push_back({name, name + "-" + digits, name, {}});
    }
    for (int peer = 0; peer <= index; ++peer) {
      const LinkCurve link(Seconds(1e-5), BytesPerSecond(draws.spread(10e9, 100e9)));
      cluster.links.push_back({"class_" + std::to_string(peer), name, {}, link, "drawn"});
    }
  }
};

}  // namespace heteroperf
