#pragma once

#include <map>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "results/comparison/run_set.hpp"

namespace heteroperf {

/// Values of a record by their JSON pointers.
using RecordLeaves = std::map<std::string, std::string>;

/// Every leaf of two records that differs, by path.
std::vector<EnvironmentDifference> leaf_differences(const RecordLeaves& a, const RecordLeaves& b);

/// Every field in which the keys of two runs differ; where it is the workload's hash, also the
/// settings and the leaves of the workload that differ, the first some.
std::vector<Problem> key_differences(const RunDigest& a, const RunDigest& b,
                                     const std::string& name_a, const std::string& name_b);

}  // namespace heteroperf
