// The set-up of a run is what was chosen before it started: its configuration, the plan that came
// out of it, and the devices. Two runs with one set-up are repetitions of one measurement. Settings
// that change no measurement, such as the seed, the folder and the logs, are left out, because
// repetitions have to differ in the seed and in the folder.

#include "results/comparison/run_setup.hpp"

#include <algorithm>
#include <array>

namespace heteroperf {
namespace {

constexpr std::array without_effect{"/config/_format", "/config/_version",  "/config/seed",
                                    "/config/out",     "/config/rank_logs", "/config/trace"};

SetupLeaves leaves_below(const RunDigest& run, const std::string& section) {
  SetupLeaves leaves;
  for (auto leaf = run.environment.lower_bound(section); leaf != run.environment.end(); ++leaf) {
    const std::string& path = leaf->first;
    if (!path.starts_with(section)) break;
    if (!is_without_effect(path)) leaves.insert(*leaf);
  }
  return leaves;
}

}  // namespace

bool is_without_effect(const std::string& path) {
  return std::any_of(without_effect.begin(), without_effect.end(),
                     [&](const char* one) { return path == one; });
}

SetupLeaves configuration_of(const RunDigest& run) { return leaves_below(run, "/config/"); }

SetupLeaves setup_of(const RunDigest& run) {
  SetupLeaves setup = configuration_of(run);
  setup.merge(leaves_below(run, "/plan_summary"));
  setup.merge(leaves_below(run, "/scale/"));
  return setup;
}

}  // namespace heteroperf
