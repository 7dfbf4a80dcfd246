// Holds a suite's folder to the journals in it. A suite runs several workloads one after another,
// each in a folder of its own, and every journal's first line names the suite, all of its workloads
// and which of them the run is. So an edited suite.json, a missing run or a run of another suite
// shows in the first lines. Workloads are run in their order: a run behind one that is missing
// means that the missing one was taken away. Only the first fault is kept.
#include "results/record/suite_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "metrics/base/error.hpp"
#include "results/journal/journal.hpp"
#include "results/record/ruleset.hpp"
#include "results/record/run_folder.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

constexpr const char* other_list =
    "Move suite.json away: `heteroperf recover` makes it again from the journals.";
constexpr const char* other_run = "Put the suite's own run back, as it was written.";

/// Names a suite's list in a message.
std::string list_text(const SuitePlan& plan) {
  return fmt::format("workloads {} of {}", fmt::join(plan.workloads, " "), plan.created_utc);
}

/// Goes through the workloads in their order and keeps the first fault. It is used once.
class SuiteInspection {
 public:
  SuiteInspection(const fs::path& folder, const SuitePlan& plan) : folder_(folder), plan_(plan) {}

  SuiteEvidence look(const std::vector<std::string>& recorded) {
    hold_names();
    for (const std::string& workload : plan_.workloads) look_at(workload);
    for (const std::string& workload : recorded) hold_recorded(workload);
    if (evidence_.named && !evidence_.silent.empty()) {
      fault(fmt::format("a run of {} in {}", plan_.run_id, evidence_.silent),
            "a run whose journal names no suite", other_run);
    }
    return std::move(evidence_);
  }

 private:
  /// The texts are cut and cleaned, since the names in them may be a stranger's.
  void fault(const std::string& expected, const std::string& actual, const char* way_out) {
    constexpr std::size_t longest = 500;
    if (evidence_.fault) return;
    evidence_.fault = SuiteFault{line_text(expected.substr(0, longest)),
                                 line_text(actual.substr(0, longest)), way_out};
  }

  /// A workload that is named twice would count twice.
  void hold_names() {
    std::set<std::string> seen;
    for (const std::string& name : plan_.workloads) {
      if (!seen.insert(name).second) fault("each workload once", name + " twice", other_list);
    }
  }

  /// A run's folder may be missing only where all behind it are missing too.
  void look_at(const std::string& workload) {
    const RunFiles files{part_of(folder_, workload)};
    if (!fs::exists(files.journal())) {
      if (fs::exists(files.record())) {
        fault(fmt::format("a journal in {}", workload), "record.json alone", other_run);
      } else if (first_absent_.empty()) {
        first_absent_ = workload;
      }
      return;
    }
    if (!first_absent_.empty()) {
      fault(fmt::format("a run in {}, which comes before {}", first_absent_, workload),
            "no such run", other_run);
    }
    try {
      hold_start(workload, read_journal_start(files.journal().string()));
    } catch (const Error&) {
      // Whoever reads all of it tells what is wrong with it.
    }
  }

  /// The journal must name this suite, with the same workloads in the same order, and itself by the
  /// folder in which it lies.
  void hold_start(const std::string& workload, const StartEvent& start) {
    if (!start.suite) {
      if (evidence_.silent.empty()) evidence_.silent = workload;
      return;
    }
    evidence_.named = true;
    if (start.suite->run_id != plan_.run_id) {
      fault(fmt::format("a run of {} in {}", plan_.run_id, workload),
            "one of " + start.suite->run_id, other_run);
    } else if (*start.suite != plan_) {
      fault(fmt::format("{}, as the journal in {} says", list_text(*start.suite), workload),
            list_text(plan_), other_list);
    } else if (start.suite_workload != workload) {
      fault(fmt::format("the suite's run of {} in its folder", workload),
            "that of " + start.suite_workload, other_run);
    }
  }

  /// A workload that suite.json has a record of did run.
  void hold_recorded(const std::string& workload) {
    const RunFiles files{part_of(folder_, workload)};
    if (fs::exists(files.journal()) || fs::exists(files.record())) return;
    fault(fmt::format("the run of {}, which suite.json has a record of", workload),
          "no run in its folder", other_run);
  }

  const fs::path& folder_;
  const SuitePlan& plan_;
  SuiteEvidence evidence_;
  std::string first_absent_;
};

}  // namespace

SuiteEvidence look_at_suite(const fs::path& folder, const SuitePlan& plan,
                            const std::vector<std::string>& recorded) {
  return SuiteInspection(folder, plan).look(recorded);
}

std::optional<SuitePlan> suite_plan_of_journals(const fs::path& folder) {
  for (const fs::path& journal : journals_in(folder)) {
    try {
      StartEvent start = read_journal_start(journal.string());
      if (start.suite) return std::move(start.suite);
    } catch (const Error&) {
      // Another one may tell; what is wrong with this one is said when it is recovered.
    }
  }
  return std::nullopt;
}

/// The order counts as well.
bool is_whole_suite(const std::vector<std::string>& workloads) {
  return std::equal(workloads.begin(), workloads.end(), suite_workloads.begin(),
                    suite_workloads.end());
}

}  // namespace heteroperf
