// How far apart may two sound runs of one training be?
//
// A fixed limit says too little: rounding grows in a training, slowly in one and a hundredfold per
// step in another. So the same steps are trained several times with the terms of all sums in orders
// that are drawn, which changes nothing but roundings, and the largest difference between two of
// these runs is the band that losses are held to.
#include "runners/engine/noise_band.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {

double relative_difference(double a, double b) {
  if (a == b) return 0;
  if (!std::isfinite(a) || !std::isfinite(b) || b == 0) return infinite;
  return std::abs(a - b) / std::abs(b);
}

NoiseBand noise_band(const std::vector<std::vector<double>>& runs) {
  HETEROPERF_EXPECT(!runs.empty());
  // Losses are kept in float32, which few steps may all round to the same number.
  constexpr double least = 0x1.0p-24;
  NoiseBand band{static_cast<int>(runs.size()), least};
  for (const std::vector<double>& run : runs) {
    for (const std::vector<double>& other : runs) {
      HETEROPERF_EXPECT(run.size() == other.size());
      for (std::size_t n = 0; n < run.size(); ++n) {
        band.relative = std::max(band.relative, relative_difference(run[n], other[n]));
      }
    }
  }
  return band;
}

std::optional<std::size_t> parted_at(std::span<const double> losses,
                                     std::span<const double> reference, double limit) {
  HETEROPERF_EXPECT(losses.size() == reference.size());
  for (std::size_t n = 0; n < losses.size(); ++n) {
    // Written so that a loss that is not finite has parted, whatever the limit.
    const double difference = relative_difference(losses[n], reference[n]);
    if (!(difference <= limit) || !std::isfinite(difference)) return n;
  }
  return std::nullopt;
}

std::vector<RankDevice> drawn_devices(const RankDevice& reference, int runs) {
  EmulatedChip chip;
  chip.precisions = {"fp32", "bf16", "fp64"};
  if (reference.chip) chip.products = reference.chip->products;
  std::vector<RankDevice> devices;
  for (int run = 1; run <= runs; ++run) {
    chip.name = fmt::format("order-{}", run);
    chip.sum_order = static_cast<std::uint64_t>(run);
    devices.push_back({.name = "emulated:" + chip.name, .chip = chip});
  }
  return devices;
}

}  // namespace heteroperf
