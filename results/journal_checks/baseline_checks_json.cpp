#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "results/journal_checks/baseline_checks.hpp"
#include "results/journal_checks/line_check.hpp"
#include "results/ruleset.hpp"
#include "results/run_folder.hpp"
#include "results/run_summary.hpp"
#include "results/sha256.hpp"
#include "results/stored_document_json.hpp"

namespace heteroperf {
namespace {

std::string baseline_rate_text(const std::optional<double>& samples_per_s) {
  return samples_per_s ? fmt::format("{} samples/s", *samples_per_s) : "no number";
}

std::uint64_t devices_of_class(const Journal& journal, const std::string& name) {
  const auto* scale = journal.first<ScaleEvent>();
  if (scale == nullptr) return 0;
  for (const DeviceCount& device : scale->devices) {
    if (device.device_class == name) return device.count;
  }
  return 0;
}

/// Numbers that its own journal gives. Another ruleset's numbers may be others.
void hold_to_own_run(const BaselineEvent& baseline, const RunFiles& own, const Json& record,
                     std::size_t line, LineCheck& check) {
  const Journal journal = read_journal(own.journal().string());
  check.equal(line, "journal of " + baseline.folder, value_at(record, "/hashes/journal").dump(),
              '"' + journal.sha256 + '"');
  const auto* plan = journal.first<PlanEvent>();
  check.equal(line, "plan", plan == nullptr ? "" : plan->summary, baseline.plan);
  const auto* predicted = journal.first<PredictionEvent>();
  check.equal(line, "planned",
              baseline_rate_text(predicted == nullptr ? std::nullopt
                                                      : std::optional(predicted->samples_per_s)),
              baseline_rate_text(baseline.planned_samples_per_s));
  const auto* stop = journal.last<StopEvent>();
  const bool interrupted = stop == nullptr || stop->status != RunStatus::complete;
  if (interrupted || value_at(record, "/validity/ruleset") != ruleset_version) return;
  const BaselineResult result = baseline_result(journal);
  check.equal(line, "measured", baseline_rate_text(result.samples_per_s),
              baseline_rate_text(baseline.samples_per_s));
  check.equal(line, "reason", result.reason, baseline.reason);
}

void hold_baseline(const BaselineEvent& baseline, const std::filesystem::path& folder,
                   std::size_t line, LineCheck& check) {
  if (baseline.record_sha256.empty()) {
    check.equal(line, "measured without a run", std::string("no number"),
                baseline_rate_text(baseline.samples_per_s));
    return;
  }
  check.equal(line, "folder", "baseline-" + baseline.device_class, baseline.folder);
  const RunFiles own{part_of(folder, baseline.folder)};
  check.equal(line, "record of " + baseline.folder, baseline.record_sha256,
              sha256_file_hex(own.record().string()));
  hold_to_own_run(baseline, own, read_stored_document(own.record(), record_format), line, check);
}

}  // namespace

BaselineResult baseline_result(const Journal& journal) {
  const RunSummary summary = summarize(journal);
  for (const Reason& reason : judge(journal, summary).reasons) {
    if (reason.severity != Severity::invalid) continue;
    return {std::nullopt, fmt::format("its run is invalid: {} ({})", reason.rule, reason.actual)};
  }
  return {summary.plan.samples_per_s, ""};
}

std::vector<VerifyCheck> check_baseline_lines(const Journal& journal,
                                              const std::filesystem::path& folder) {
  LineCheck check("baselines", "facts of the baselines");
  std::set<std::string> classes;
  for_lines<BaselineEvent>(journal, [&](std::size_t line, const BaselineEvent& baseline) {
    check.equal(line, "devices of " + baseline.device_class,
                devices_of_class(journal, baseline.device_class),
                static_cast<std::uint64_t>(baseline.count));
    if (!classes.insert(baseline.device_class).second) {
      check.equal(line, "class", std::string("each once"), baseline.device_class + " again");
      return;
    }
    try {
      hold_baseline(baseline, folder, line, check);
    } catch (const Error& error) {
      check.equal(line, "baseline", std::string("that can be read"), std::string(error.what()));
    }
  });
  if (check.count() == 0) return {};
  return {check.result()};
}

}  // namespace heteroperf
