// A run on a mixed cluster may also measure each device class alone: its *baselines*. A baseline is
// a whole run in a folder of its own, `baseline-<class>`, and a `baseline` line of the main journal
// repeats its plan and its throughput. This check holds every such line to that run: the hash of
// its record, the hash of its journal inside the record, its plan, and the predicted and the
// measured throughput that its journal gives. A line may also stand for a class that did not run;
// then it tells a prediction at most. The runs themselves are verified elsewhere, as whole runs.
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/statistics.hpp"
#include "results/journal_checks/checked_journal.hpp"
#include "results/journal_checks/journal_checks.hpp"
#include "results/record/ruleset.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/run_summary.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/text/sha256.hpp"

namespace heteroperf {
namespace {

/// Names a throughput or a difference of losses for a comparison; a class without one is compared
/// by those words.
std::string number_text(const std::optional<double>& number, const char* unit = "") {
  return number ? fmt::format("{}{}", *number, unit) : "no number";
}
std::string baseline_rate_text(const std::optional<double>& samples_per_s) {
  return number_text(samples_per_s, " samples/s");
}

/// Returns the mean relative difference of the losses of all common steps. Both runs take the same
/// samples in each step, so it is what their devices' roundings do to the training. There is none
/// without a common step, or where a loss is not finite.
std::optional<double> mean_loss_difference(const Journal& mix, const Journal& alone) {
  std::vector<double> differences;
  for (const auto& [of_mix, of_alone] : common_steps(mix, alone)) {
    differences.push_back(relative_difference(of_mix->loss, of_alone->loss));
  }
  if (differences.empty()) return std::nullopt;
  const double difference = mean(differences);
  return std::isfinite(difference) ? std::optional(difference) : std::nullopt;
}

/// Returns the devices of this class in the whole run; 0 where the `scale` line names none.
std::uint64_t devices_of_class(const Journal& journal, const std::string& name) {
  const auto* scale = journal.first<ScaleEvent>();
  if (scale == nullptr) return 0;
  for (const DeviceCount& device : scale->devices) {
    if (device.device_class == name) return device.count;
  }
  return 0;
}

/// Holds the line to the numbers that the baseline's own journal gives. The measured one is
/// computed again only where that run is complete and its record was judged by this program's
/// ruleset, since another ruleset may find it invalid, and an invalid run has no number.
void hold_to_own_run(const BaselineEvent& baseline, const Journal& mix, const RunFiles& run,
                     const Json& record, LineCheck& check) {
  const Journal journal = read_journal(run.journal().string());
  check.equal("journal of " + baseline.folder, value_at(record, "/hashes/journal").dump(),
              '"' + journal.sha256 + '"');
  const auto* plan = journal.first<PlanEvent>();
  check.equal("plan", plan == nullptr ? "" : plan->summary, baseline.plan);
  const auto* predicted = journal.first<PredictionEvent>();
  check.equal("planned",
              baseline_rate_text(predicted == nullptr ? std::nullopt
                                                      : std::optional(predicted->samples_per_s)),
              baseline_rate_text(baseline.planned_samples_per_s));
  const auto* stop = journal.last<StopEvent>();
  const bool interrupted = stop == nullptr || stop->status != RunStatus::complete;
  if (interrupted || value_at(record, "/validity/ruleset") != ruleset_version) return;
  const BaselineResult result = baseline_result(journal, mix);
  check.equal("measured", baseline_rate_text(result.samples_per_s),
              baseline_rate_text(baseline.samples_per_s));
  if (baseline.loss_difference) {  // earlier programs did not tell it
    check.equal("losses apart", number_text(result.loss_difference),
                number_text(baseline.loss_difference));
  }
  check.equal("reason", result.reason, baseline.reason);
}

/// The folder's name follows from the class, so that a line cannot borrow another class's run, and
/// the hash of the record ties the line to one run in that folder.
void hold_baseline(const BaselineEvent& baseline, const Journal& mix,
                   const std::filesystem::path& folder, LineCheck& check) {
  if (baseline.record_sha256.empty()) {
    check.equal("measured without a run", "no number", baseline_rate_text(baseline.samples_per_s));
    check.equal("losses without a run", "no number", number_text(baseline.loss_difference));
    return;
  }
  check.equal("folder", "baseline-" + baseline.device_class, baseline.folder);
  const RunFiles run{part_of(folder, baseline.folder)};
  check.equal("record of " + baseline.folder, baseline.record_sha256,
              sha256_file_hex(run.record().string()));
  hold_to_own_run(baseline, mix, run, read_stored_document(run.record(), record_format), check);
}

}  // namespace

BaselineResult baseline_result(const Journal& alone, const Journal& mix) {
  const RunSummary summary = summarize(alone);
  for (const Reason& reason : judge(alone, summary).reasons) {
    if (reason.severity != Severity::invalid) continue;
    return {{}, {}, fmt::format("its run is invalid: {} ({})", reason.rule, reason.actual)};
  }
  return {summary.plan.samples_per_s, mean_loss_difference(mix, alone), ""};
}

std::vector<VerifyCheck> check_baseline_lines(const Journal& journal,
                                              const std::filesystem::path& folder) {
  LineCheck check("baselines", "facts of the baselines");
  std::set<std::string> classes;
  check.each(journal, [&](const BaselineEvent& baseline) {
    check.equal("devices of " + baseline.device_class,
                devices_of_class(journal, baseline.device_class),
                static_cast<std::uint64_t>(baseline.count));
    // A second line of a class would count the class twice in the sum over all classes.
    if (!classes.insert(baseline.device_class).second) {
      check.equal("class", "each once", baseline.device_class + " again");
      return;
    }
    try {
      hold_baseline(baseline, journal, folder, check);
      // Files that cannot be read are a failed check of this line, not an error of the program.
    } catch (const Error& error) {
      check.equal("baseline", "that can be read", std::string(error.what()));
    }
  });
  if (check.count() == 0) return {};
  return {check.result()};
}

}  // namespace heteroperf
