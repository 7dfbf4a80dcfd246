#pragma once

#include <cstdint>

#include "runners/cluster/cluster.hpp"

namespace heteroperf {

/// Bounds of the clusters that random_cluster() makes.
struct RandomClusterRange {
  int least_classes = 1, most_classes = 4;
  int least_devices = 64, most_devices = 512;     ///< of all classes together
  double slowest_rate = 60e12, speed_spread = 4;  ///< operations per second, fp32; fastest/slowest
  double least_memory = 16e9, most_memory = 96e9;
  double least_bandwidth = 10e9, most_bandwidth = 100e9;  ///< bytes per second, any link
  double latency_s = 1e-5;
};

/// A mixed cluster: nodes of 4 or 8 devices, any counts of nodes, rates, memory and links drawn
/// evenly on a logarithmic scale. Equal on every machine.
Cluster random_cluster(std::uint64_t seed, const RandomClusterRange& range = {});

/// Samples of a step for such a cluster: 16 to 128 per device, drawn on a logarithmic scale.
std::int64_t random_batch(std::uint64_t seed, int devices);

}  // namespace heteroperf
