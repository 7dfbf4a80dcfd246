// Two sound runs of one training are apart by roundings, and this tells how far they may be.
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
#include "metrics/statistics.hpp"

namespace heteroperf {

NoiseBand noise_band(const std::vector<std::vector<double>>& runs) {
  HETEROPERF_EXPECT(!runs.empty());
  NoiseBand band{static_cast<int>(runs.size())};
  double largest = 0x1.0p-24;
  for (std::size_t n = 0; n < runs.front().size(); ++n) {
    for (const std::vector<double>& run : runs) {
      for (const std::vector<double>& other : runs) {
        largest = std::max(largest, relative_difference(run.at(n), other.at(n)));
      }
    }
    band.by_step.push_back(largest);
  }
  return band;
}

std::optional<std::size_t> parted_at(std::span<const double> losses,
                                     std::span<const double> reference,
                                     const std::function<double(std::size_t)>& limit_of) {
  HETEROPERF_EXPECT(losses.size() == reference.size());
  for (std::size_t n = 0; n < losses.size(); ++n) {
    const double difference = relative_difference(losses[n], reference[n]);
    if (difference > limit_of(n) || !std::isfinite(difference)) return n;
  }
  return std::nullopt;
}

RankDevice exact_device() { return {.name = "cpu:exact", .kernels = KernelSet::exact}; }

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
