#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace heteroperf {

/// A run of several workloads, one after another, each in a folder of its own.
struct SuitePlan {
  std::string run_id, created_utc;
  std::vector<std::string> workloads;  ///< names of the subfolders, in order
};

/// Text of suite.json, a pure function of the plan and the bytes of the records in the subfolders.
/// Suite OPS = Σ operations / Σ window seconds, there only when every workload is valid. A workload
/// without a record counts as not run. Throws UserError on malformed records.
std::string build_suite_record(const std::filesystem::path& folder, const SuitePlan& plan);

/// Builds and writes suite.json: before the first workload (so that `recover` knows the plan of a
/// suite that was killed) and after the last.
std::string write_suite_record(const std::filesystem::path& folder, const SuitePlan& plan);

/// The plan in the folder's suite.json; nothing where there is none. Throws UserError when
/// malformed.
std::optional<SuitePlan> read_suite_plan(const std::filesystem::path& folder);

}  // namespace heteroperf
