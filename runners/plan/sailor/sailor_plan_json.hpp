#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/plan/sailor/sailor_plan.hpp"
#include "runners/plan/sailor/sailor_tables.hpp"

namespace heteroperf {

/// A plan file of Sailor's, and what was measured where the file says it.
struct SailorRun {
  SailorPlan plan;
  std::vector<std::string> notes;     ///< slips of the file that leave no doubt
  std::int64_t global_batch = 0;      ///< 0: not in the file
  std::optional<double> step_time_s;  ///< `real`
  std::optional<double> reduction_s;  ///< `red_grads`
  std::optional<Bytes> peak_memory;   ///< `max_mem`
};

/// Throws UserError with everything wrong: several pipelines, layers that do not follow each other,
/// devices that `tables` do not know, counts that contradict each other.
SailorRun read_sailor_run(const std::filesystem::path& file, const SailorTables& tables);

}  // namespace heteroperf
