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

/// Text of suite.json, the record of several workloads that were run one after another, each in a
/// folder of its own: a pure function of the plan, the journals' first lines and the bytes of the
/// records in the subfolders. Suite OPS = Σ operations / Σ window seconds, there only when every
/// workload of the ruleset is and is valid. A workload without a record counts as not run. A suite
/// that an earlier ruleset judged keeps that verdict. Throws UserError on malformed records.
std::string build_suite_record(const std::filesystem::path& folder, const SuitePlan& plan);

/// Builds and writes suite.json: before the first workload (so that `recover` knows the plan of a
/// suite that was killed) and after the last.
std::string write_suite_record(const std::filesystem::path& folder, const SuitePlan& plan);

/// The content of a suite.json.
struct StoredSuite {
  SuitePlan plan;
  std::vector<std::string> recorded;  ///< its workloads that had a record
};

/// Nothing where there is no suite.json in the folder. Throws UserError when it is malformed.
std::optional<StoredSuite> read_suite_record(const std::filesystem::path& folder);

/// The first thing that suite.json says otherwise than the journals and records beside it, which
/// may themselves be edited; empty where there is none. Throws UserError on malformed documents.
std::string suite_contradiction(const std::filesystem::path& folder);

/// Why a suite has no OPS that could be ranked although nothing contradicts it: workloads are
/// missing, or no journal tells whether they are; empty otherwise. Throws as above.
std::string why_no_suite_score(const std::filesystem::path& folder);

}  // namespace heteroperf
