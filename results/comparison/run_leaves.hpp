#pragma once

#include <set>
#include <string>
#include <vector>

#include "results/comparison/run_digest.hpp"

namespace heteroperf {

/// The configuration that a run was given, without what changes no measurement: its seed, its
/// folder, logs and traces.
RecordLeaves configuration_of(const RunDigest& run);

/// True when a leaf of a configuration changes no measurement.
bool is_without_effect(const std::string& path);

/// The set-up of a run: its configuration, what became of it (plan summary, groups), and its
/// scale (ranks, transport, devices with their threads). Equal for repetitions.
RecordLeaves setup_of(const RunDigest& run);

/// A leaf of two records that differs; an empty text: not there.
struct EnvironmentDifference {
  std::string path, a, b;
};
std::vector<EnvironmentDifference> leaf_differences(const RecordLeaves& a, const RecordLeaves& b);
std::vector<EnvironmentDifference> environment_differences(const RunDigest& a, const RunDigest& b);

/// The paths at which not all of these are alike; an absent leaf counts as an empty one.
std::set<std::string> differing_paths(const std::vector<const RecordLeaves*>& all);

}  // namespace heteroperf
