// A loss fingerprint is the hash of a run's losses, bit for bit. Floating-point sums depend on
// their order, so two correct programs give one fingerprint only under equal conditions: the same
// seed, the same plan and number of groups, the same processor, GPUs and library. This file finds
// the first of these that differs, in which case the fingerprint is not judged, as its change would
// say nothing about the program.

#include "results/comparison/loss_conditions.hpp"

#include <fmt/format.h>

namespace heteroperf {
namespace {

constexpr const char* condition_paths[] = {"/seeds/run",      "/plan_summary",     "/config/seed",
                                           "/scale/groups",   "/system/cpu/model", "/system/gpus",
                                           "/system/libtorch"};

std::string value_at_path(const RunDigest& run, const char* path) {
  const auto found = run.environment.find(path);
  return found == run.environment.end() ? std::string() : found->second;
}

/// A leaf that only some of the records have differs too.
bool differs_at(const RunPairs& runs, const char* path) {
  const std::string first = value_at_path(runs.base.runs.front(), path);
  for (const RunSet* set : {&runs.base, &runs.head}) {
    for (const RunDigest& run : set->runs) {
      if (value_at_path(run, path) != first) return true;
    }
  }
  return false;
}

}  // namespace

std::string why_losses_may_differ(const RunPairs& runs) {
  for (const char* path : condition_paths) {
    if (differs_at(runs, path)) return fmt::format("{} differs", path + 1);
  }
  return {};
}

}  // namespace heteroperf
