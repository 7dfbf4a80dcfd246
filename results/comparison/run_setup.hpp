#pragma once

#include <map>
#include <string>

#include "results/comparison/run_digest.hpp"

namespace heteroperf {

/// Leaves of a run's environment by their paths.
using SetupLeaves = std::map<std::string, std::string>;

/// The configuration that a run was given, without what changes no measurement: its seed, its
/// folder, logs and traces.
SetupLeaves configuration_of(const RunDigest& run);

/// True when a leaf of a configuration changes no measurement.
bool is_without_effect(const std::string& path);

/// The set-up of a run: its configuration, what became of it (plan summary, groups), and its
/// scale (ranks, transport, devices with their threads). Equal for repetitions.
SetupLeaves setup_of(const RunDigest& run);

}  // namespace heteroperf
