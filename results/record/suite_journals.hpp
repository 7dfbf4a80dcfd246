#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "results/journal/events.hpp"

namespace heteroperf {

/// A place where a suite's folder is not what the journals in it say.
struct SuiteFault {
  std::string expected, actual;
  const char* way_out = "";  ///< advice to the user
};

/// The journals' word on the suite in whose folder they lie. Each begins with the suite's id, all
/// of its workloads and which of them the run is; those of older programs say nothing of that.
struct SuiteEvidence {
  bool named = false;               ///< a journal names a suite
  std::string silent;               ///< the first workload whose journal names none
  std::optional<SuiteFault> fault;  ///< the first difference between plan and folder
};

/// Holds `plan` to the first lines of the journals in `folder`. `recorded`: workloads that are
/// known to have run. Throws UserError where a workload's name leads out of the folder.
SuiteEvidence look_at_suite(const std::filesystem::path& folder, const SuitePlan& plan,
                            const std::vector<std::string>& recorded = {});

/// The plan that the first journal in the folders of `folder` names, for a suite without
/// suite.json.
std::optional<SuitePlan> suite_plan_of_journals(const std::filesystem::path& folder);

/// True for all workloads of the ruleset, in its order.
bool is_whole_suite(const std::vector<std::string>& workloads);

}  // namespace heteroperf
