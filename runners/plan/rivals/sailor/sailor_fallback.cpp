// Stand-ins for profiles that one device lacks and another has: `plan --fill-profiles`.
//
// Published profiles have gaps: a device was measured with some sizes of micro-batches and degrees
// only. A search without stand-ins would never use the device where its profile is missing, however
// good it might be. A stand-in scales the nearest measured profile of the same device in proportion
// to the samples of a rank; it is marked as analytic in the report. A device that was never
// measured gets none.
#include "runners/plan/rivals/sailor/sailor_inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace heteroperf {
namespace {

/// Another degree is a worse model than another size by more than any ratio of sizes.
constexpr double weight_of_degree = 100;

/// Measures how unlike two profiles of one device are. Ratios count, not differences: 8 is as far
/// from 4 as from 16.
double distance(const std::pair<std::int64_t, int>& entry, const MissingProfile& to) {
  const auto ratio = [](double a, double b) { return std::abs(std::log(a / b)); };
  return ratio(static_cast<double>(entry.first), static_cast<double>(to.micro_batch)) +
         weight_of_degree * ratio(entry.second, to.tensor);
}

}  // namespace

std::string to_string(const MissingProfile& missing) {
  return fmt::format("{} tp{} micro-batch {}", missing.device, missing.tensor, missing.micro_batch);
}

// A profile is missing where another of the named devices has it, a node has room for its degree
// and the layers are described for it; what no device has is not missed.
std::vector<MissingProfile> missing_profiles(const SailorInputs& inputs,
                                             const std::vector<std::string>& devices) {
  std::set<std::pair<std::int64_t, int>> known;
  for (const std::string& device : devices) {
    const auto profiles = inputs.model.profiles.find(device);
    if (profiles == inputs.model.profiles.end()) continue;
    for (const auto& [key, timings] : profiles->second) known.insert(key);
  }
  std::set<MissingProfile> missing;
  for (const std::string& device : devices) {
    const auto profiles = inputs.model.profiles.find(device);
    const auto given = inputs.devices.find(device);
    for (const auto& [size, tensor] : known) {
      if (!inputs.model.layers.contains(tensor)) continue;
      if (given != inputs.devices.end() && tensor > given->second.per_node) continue;
      const bool here =
          profiles != inputs.model.profiles.end() && profiles->second.contains({size, tensor});
      if (!here) missing.insert({device, size, tensor});
    }
  }
  return {missing.begin(), missing.end()};
}

// Stand-ins are made of what was measured alone, never of other stand-ins. Computing time follows
// the samples of a rank; updates follow its parameters, that is the degree.
void fill_profiles(const std::vector<MissingProfile>& missing, SailorInputs& inputs) {
  const auto measured = inputs.model.profiles;
  for (const MissingProfile& wanted : missing) {
    const auto profiles = measured.find(wanted.device);
    if (profiles == measured.end() || profiles->second.empty()) continue;
    const auto nearest = std::min_element(
        profiles->second.begin(), profiles->second.end(), [&](const auto& a, const auto& b) {
          return distance(a.first, wanted) < distance(b.first, wanted);
        });
    const auto& [size, tensor] = nearest->first;
    const double factor = static_cast<double>(wanted.micro_batch) / static_cast<double>(size) *
                          tensor / wanted.tensor;
    std::vector<SailorTiming> timings = nearest->second;
    for (SailorTiming& timing : timings) {
      timing.forward_s *= factor;
      timing.backward_s *= factor;
      timing.update_s *= static_cast<double>(tensor) / wanted.tensor;
    }
    inputs.model.profiles[wanted.device][{wanted.micro_batch, wanted.tensor}] = std::move(timings);
  }
}

}  // namespace heteroperf
