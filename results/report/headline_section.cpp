// The first section of a run's part shows the scores in large letters, and above them whatever a
// reader must know before believing a score. A report is made of any run, also of one that was
// killed, edited or is invalid by the rules, so the notices come first and an invalid run shows no
// score at all. The table of reasons says which rule put the run into its validity class and what
// would help.

#include <fmt/format.h>

#include "results/report/report_run.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

/// A figure with half the width of its interval, in the prefix of its value: "9.98 ± 0.12 Gop/s".
/// Both ends have the decimal prefix that suits each of them.
ReportFigure estimate_figure(const char* name, const Estimate& estimate, const std::string& unit) {
  const Scaled scaled = scale_of(estimate.value);
  if (!estimate.ci95) {
    return {name, with_prefix(estimate.value, unit), "no interval: fewer than 10 steps measured"};
  }
  const auto [low, high] = *estimate.ci95;
  const double half = (high - low) / 2;
  return {name,
          fmt::format("{:.4g} ± {:.2g} {}", estimate.value / scaled.factor, half / scaled.factor,
                      prefixed(scaled, unit)),
          fmt::format("95 %: {} to {}", with_prefix(low, unit), with_prefix(high, unit))};
}

/// Adds the scores that the run has, the headline first.
void add_scores(const ReportRun& run, std::vector<ReportFigure>& figures) {
  const RunSummary& summary = run.summary;
  const auto* workload = run.journal.first<WorkloadEvent>();
  if (summary.ops_per_second) {
    figures.push_back(estimate_figure("OPS (strict)", *summary.ops_per_second, operations_unit));
  }
  if (summary.throughput && workload != nullptr) {
    figures.push_back(estimate_figure("Throughput", *summary.throughput, workload->unit + "/s"));
  }
  if (summary.utilization) {
    figures.push_back(
        {"Of the measured peak", fmt::format("{:.1f} %", 100 * *summary.utilization), ""});
  }
  if (const auto& score = summary.regulated_score) {
    figures.push_back(
        {"Regulated score", with_prefix(score->value, operations_unit),
         fmt::format("−ln(error) × OPS, {} of {} answers wrong", score->wrong, score->answers)});
  }
  if (summary.plan.hetero && summary.plan.hetero->measured) {
    const HeteroFigures& mix = *summary.plan.hetero->measured;
    figures.push_back({"HSR", fmt::format("{:.3f}", mix.hsr()),
                       fmt::format("{:.2f} × {} alone", mix.gain(), mix.best_class)});
  }
}

/// The quality with the samples that it was measured on and the target, where there are any.
void add_quality(const RunSummary& summary, std::vector<ReportFigure>& figures) {
  if (!summary.quality) return;
  const QualityResult& quality = *summary.quality;
  std::string detail = quality.samples > 0 ? fmt::format("on {} samples", quality.samples) : "";
  if (quality.target) {
    detail += fmt::format("{}target {:.4g} {}", detail.empty() ? "" : ", ", *quality.target,
                          quality.met == true ? "met" : "not met");
  }
  figures.push_back({fmt::format("Quality ({})", to_string(quality.measure)),
                     fmt::format("{:.4g}", quality.value), detail});
}

/// A closed run follows all rules; the two classes between closed and invalid are a note.
NoticeLevel level_of(Severity severity) {
  if (severity == Severity::closed) return NoticeLevel::good;
  return severity == Severity::invalid ? NoticeLevel::bad : NoticeLevel::note;
}

/// Says first if the run did not end, then if its journal or its record cannot be believed.
void add_status(const ReportRun& run, std::vector<ReportNotice>& notices) {
  const RunSummary& summary = run.summary;
  if (run.journal.last<StopEvent>() == nullptr) {
    notices.push_back(
        {NoticeLevel::bad, fmt::format("The run did not end: {}. This is what it left in {}.",
                                       summary.reason, plural(summary.total_steps, "step"))});
  } else if (summary.status != RunStatus::complete) {
    const char* what =
        summary.status == RunStatus::failed ? "The run failed" : "The run is partial";
    notices.push_back({NoticeLevel::bad, fmt::format("{}: {}", what, summary.reason)});
  }
  if (!run.contradiction.empty()) {
    notices.push_back({NoticeLevel::bad,
                       "The journal contradicts itself, so that no number here "
                       "can be relied on: " +
                           run.contradiction + " (heteroperf verify)."});
  }
  if (run.stored == RecordState::absent) {
    notices.push_back({NoticeLevel::note,
                       "There is no record.json; this report is made from the journal alone "
                       "(heteroperf recover makes the record)."});
  } else if (run.stored == RecordState::differs) {
    notices.push_back({NoticeLevel::bad,
                       "record.json is not what the journal gives: it was edited, or written by "
                       "another version. All numbers here are from the journal."});
  }
}

Table reasons_table(const Validity& validity) {
  Table table = report_table("Reasons for the validity class",
                             {"rule", "class", "parameter", "expected", "found", "what to do"});
  table.stacks = true;
  for (const Reason& reason : validity.reasons) {
    table.add({reason.rule, to_string(reason.severity), reason.parameter, reason.expected,
               reason.actual, reason.hint});
  }
  return table;
}

}  // namespace

ReportSection headline_section(const ReportRun& run) {
  ReportSection section{"Result"};
  add_status(run, section.notices);
  const Validity& validity = run.validity;
  const bool invalid = validity.severity == Severity::invalid;
  section.notices.push_back(
      {level_of(validity.severity),
       fmt::format("Validity: {}, {} (ruleset {}).{}", to_string(validity.severity),
                   validity.rankable() ? "can be ranked" : "cannot be ranked", ruleset_version,
                   invalid ? " An invalid run has no score." : "")});
  if (emulated_devices(run.journal) != nullptr) {
    section.notices.push_back(
        {NoticeLevel::note,
         "Emulated devices: their time is modelled, so this run says nothing about real chips."});
  }
  if (!invalid) add_scores(run, section.figures);
  add_quality(run.summary, section.figures);
  if (const auto& time = run.summary.step_time) {
    section.figures.push_back({"Step time, median", seconds_text(time->median_s),
                               "95th percentile " + seconds_text(time->p95_s)});
  }
  section.figures.push_back({"Steps", fmt::format("{}", run.summary.steps),
                             fmt::format("after {} of warm-up, {} in all", run.summary.warmup_steps,
                                         run.summary.total_steps)});
  if (!validity.reasons.empty()) section.tables.push_back(reasons_table(validity));
  return section;
}

}  // namespace heteroperf
