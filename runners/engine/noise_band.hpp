#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runners/cluster/rank_device.hpp"

namespace heteroperf {

/// A difference of more than so many bands is more than rounding.
inline constexpr double parted_bands = 3;
/// A band is that of so many runs at least.
inline constexpr int fewest_band_runs = 5;

/// The noise of a training: so far apart its losses are, where nothing but roundings differ.
struct NoiseBand {
  int runs = 0;
  /// The largest relative difference between two runs, up to each step.
  std::vector<double> by_step = {};

  /// A loss that is further than this from the reference's has parted.
  double limit(std::size_t step) const { return parted_bands * by_step[step]; }
};

/// The band of sound runs of one training, each as its losses by step. A rounding of float32 is the
/// least that it may be.
NoiseBand noise_band(const std::vector<std::vector<double>>& runs);

/// The first step whose loss is further from the reference's than `limit_of(step)`, or not finite.
std::optional<std::size_t> parted_at(std::span<const double> losses,
                                     std::span<const double> reference,
                                     const std::function<double(std::size_t)>& limit_of);

/// Devices that are sound and differ in the order of their sums alone: the host's fastest kernels,
/// with the format in which `reference` multiplies. Sums have the orders of the numbers 1 to
/// `runs`.
std::vector<RankDevice> drawn_devices(const RankDevice& reference, int runs);
/// The device that computes in float64.
RankDevice exact_device();

}  // namespace heteroperf
