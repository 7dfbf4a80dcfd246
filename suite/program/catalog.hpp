#pragma once

#include <string>
#include <vector>

#include "workloads/workload_factories.hpp"

namespace heteroperf {

/// The course of a workload: one model on all ranks, or a search that hands trials to groups.
enum class ProgramKind { training, search };

/// One workload users can name.
struct CatalogEntry {
  const char* name;
  const char* summary;
  ProgramKind program;
  Workload (*make)(const WorkloadRequest& request, const ScalingInput& machine);
  /// Chooses the size of the model for a machine.
  ScalingChoice (*choose)(const ScalingInput& machine);
};

/// Every workload, in the order in which the suite runs them.
const std::vector<CatalogEntry>& catalog();
/// Throws UserError naming the nearest workload.
const CatalogEntry& find_workload(const std::string& name);
std::vector<std::string> workload_names();

}  // namespace heteroperf
