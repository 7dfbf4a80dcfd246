// The leaves of a record are its single values by their paths, such as /config/batch/micro_batch.
// The *set-up* of a run is what was chosen before it started: its configuration, the plan that came
// out of it, and the devices. Two runs with one set-up are repetitions of one measurement. Settings
// that change no measurement, such as the seed, the folder and the logs, are left out, because
// repetitions have to differ in the seed and in the folder.

#include "results/comparison/run_digest.hpp"

#include <algorithm>
#include <array>

namespace heteroperf {
namespace {

constexpr std::array without_effect{"/config/_format", "/config/_version",  "/config/seed",
                                    "/config/out",     "/config/rank_logs", "/config/trace"};

RecordLeaves leaves_below(const RunDigest& run, const std::string& section) {
  RecordLeaves leaves;
  for (auto leaf = run.environment.lower_bound(section); leaf != run.environment.end(); ++leaf) {
    const std::string& path = leaf->first;
    if (!path.starts_with(section)) break;
    if (!is_without_effect(path)) leaves.insert(*leaf);
  }
  return leaves;
}

}  // namespace

bool is_without_effect(const std::string& path) {
  return std::ranges::find(without_effect, path) != without_effect.end();
}

RecordLeaves configuration_of(const RunDigest& run) { return leaves_below(run, "/config/"); }

RecordLeaves setup_of(const RunDigest& run) {
  RecordLeaves setup = configuration_of(run);
  setup.merge(leaves_below(run, "/plan_summary"));
  setup.merge(leaves_below(run, "/scale/"));
  return setup;
}

std::set<std::string> differing_paths(const std::vector<const RecordLeaves*>& all) {
  std::set<std::string> paths;
  for (const RecordLeaves* leaves : all) {
    for (const auto& [path, value] : *leaves) {
      const auto differs = [&, &path = path, &value = value](const RecordLeaves* others) {
        return leaf_at(*others, path) != value;
      };
      if (std::ranges::any_of(all, differs)) paths.insert(path);
    }
  }
  return paths;
}

std::vector<EnvironmentDifference> leaf_differences(const RecordLeaves& a, const RecordLeaves& b) {
  std::vector<EnvironmentDifference> differences;
  for (const std::string& path : differing_paths({&a, &b})) {
    differences.push_back({path, leaf_at(a, path), leaf_at(b, path)});
  }
  return differences;
}

std::vector<EnvironmentDifference> environment_differences(const RunDigest& a, const RunDigest& b) {
  return leaf_differences(a.environment, b.environment);
}

}  // namespace heteroperf
