#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runners/cluster/rank_device.hpp"

namespace heteroperf {

/// A difference of more than so many bands is more than rounding.
inline constexpr double parted_bands = 3;
/// A band is that of so many runs at least.
inline constexpr int fewest_band_runs = 5;

/// |a − b| / |b|, 0 for equal numbers, infinite for others where `b` is 0 or one is not finite.
double relative_difference(double a, double b);

/// The noise of a training: so far apart its losses are, where nothing but the order differs in
/// which the terms of its sums are added.
struct NoiseBand {
  int runs = 0;
  double relative = 0;  ///< the largest relative difference between two runs in one step

  /// A loss that is further than this from the reference's has parted.
  double limit() const { return parted_bands * relative; }
};

/// The band of runs of one training, each as its losses by step.
NoiseBand noise_band(const std::vector<std::vector<double>>& runs);

/// The index of the first loss that is further from the reference's than the limit.
std::optional<std::size_t> parted_at(std::span<const double> losses,
                                     std::span<const double> reference, double limit);

/// Devices that are sound and differ in the order of their sums alone: the host's fastest kernels,
/// with the format in which `reference` multiplies.
std::vector<RankDevice> drawn_devices(const RankDevice& reference, int runs);

}  // namespace heteroperf
