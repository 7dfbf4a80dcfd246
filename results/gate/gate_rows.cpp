// Puts the rows of a gate's report into words, once for all of its forms: console, Markdown and
// JUnit. The headline is one line that stands alone in a list of checks: the verdict, how many
// metrics changed, how many runs that rests on, if the null control is clean, and the smallest loss
// that these runs could have seen. Without that last number a pass says little: it may be that
// nothing changed, or that nothing could be seen.

#include "results/gate/gate_rows.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cmath>

#include "results/comparison/metric_text.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

/// "1 worse, 2 undecided of 6 metrics"; kinds without a metric are left out.
std::string count_text(const GateReport& report) {
  const std::size_t regressions = report.count(GateVerdict::regression);
  const std::size_t improved = report.count(GateVerdict::improved);
  const std::size_t open = report.count(GateVerdict::inconclusive);
  std::string text;
  const auto add = [&](std::size_t count, const char* what) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(regressions, "worse");
  add(improved, "better");
  add(open, "undecided");
  return fmt::format("{} of {} metrics", text.empty() ? "0 changed" : text, report.metrics.size());
}

/// The amount of evidence in the unit of the order in which the runs ran.
std::string runs_text(const GateReport& report) {
  if (report.order == RunOrder::apart) {
    return fmt::format("{} run{} of each, not interleaved", report.blocks,
                       report.blocks == 1 ? "" : "s");
  }
  if (report.order == RunOrder::lockstep) {
    return fmt::format("{} pair{} of processes in lockstep", report.blocks,
                       report.blocks == 1 ? "" : "s");
  }
  return fmt::format("{} block{} of base, head, head, base", report.blocks,
                     report.blocks == 1 ? "" : "s");
}

/// The noise is the widest half width of the control, as a percentage of the value.
std::string control_text(const NullControl& control) {
  if (!control.measured) return "no null control";
  return fmt::format("null control {} (noise {:.1f} %)", control.alarm ? "ALARMS" : "clean",
                     100 * std::expm1(control.noise));
}

std::string resolution_text(const GateReport& report) {
  if (!report.resolution) return "";
  return fmt::format(" | resolves {:.1f} % (threshold {:.2g} %)", 100 * *report.resolution,
                     100 * report.threshold);
}

/// The change in percent and the ends of its interval; too few blocks have no interval.
std::string statistical_change(const GatedMetric& gated) {
  std::string text = change_text(*gated.ratio);
  if (!gated.ratio_ci95) return text + " (too few)";
  return text + fmt::format(" [{:+.1f}, {:+.1f}]", 100 * (gated.ratio_ci95->low - 1),
                            100 * (gated.ratio_ci95->high - 1));
}

}  // namespace

std::string gate_headline(const GateReport& report) {
  if (report.error) {
    return fmt::format("ERROR: {}{}", report.error->problems().front().problem,
                       report.blocks == 0 ? "" : " | after " + runs_text(report));
  }
  return fmt::format("{}: {} | {} | {}{}", upper(to_string(report.verdict)), count_text(report),
                     runs_text(report), control_text(report.control), resolution_text(report));
}

std::string change_heading(const GateReport& report) {
  return fmt::format("change [{} 95 %]", report.order == RunOrder::blocks ? "bootstrap" : "t");
}

GateRow gate_row(const GatedMetric& gated) {
  GateRow row{gated.metric->name,
              metric_value_text(*gated.metric, gated.kind, gated.base),
              metric_value_text(*gated.metric, gated.kind, gated.head),
              "",
              "",
              to_string(gated.verdict)};
  if (gated.kind == MetricKind::exact) {
    row.change = exact_change_text(gated.base, gated.head);
    return row;
  }
  row.change = statistical_change(gated);
  if (!gated.ratio_ci95) return row;
  row.p = fmt::format("{:.2g}", gated.judgement.p_adjusted);
  row.verdict += fmt::format(" (limit {:.1f} %)", -100 * std::expm1(-gated.judgement.limit));
  return row;
}

/// Worse rows come first, then undecided and better ones.
std::vector<const GatedMetric*> rows_that_matter(const GateReport& report) {
  std::vector<const GatedMetric*> rows;
  for (const GateVerdict verdict :
       {GateVerdict::regression, GateVerdict::inconclusive, GateVerdict::improved}) {
    for (const GatedMetric& gated : report.metrics) {
      if (gated.verdict == verdict) rows.push_back(&gated);
    }
  }
  return rows;
}

std::vector<const GatedMetric*> rows_that_pass(const GateReport& report) {
  std::vector<const GatedMetric*> rows;
  for (const GatedMetric& gated : report.metrics) {
    if (gated.verdict == GateVerdict::pass) rows.push_back(&gated);
  }
  return rows;
}

std::vector<std::string> gate_remarks(const GateReport& report) {
  std::vector<std::string> remarks;
  if (report.error) {
    for (const Problem& problem : report.error->problems()) remarks.push_back(problem.text());
  }
  if (!report.why_inconclusive.empty())
    remarks.push_back("inconclusive: " + report.why_inconclusive);
  if (report.lockstep) {
    const LockstepFacts& facts = *report.lockstep;
    remarks.push_back(fmt::format(
        "lockstep: {} quads of turns of {} step{}; fresh processes of one program differ by {:.2f} "
        "% (standard deviation); a program that stood still used {:.2f} % of a core",
        facts.quads, facts.steps_per_turn, facts.steps_per_turn == 1 ? "" : "s",
        100 * facts.process_spread, 100 * facts.idle_cpu_share));
  }
  for (const std::string& note : report.notes) remarks.push_back(note);
  return remarks;
}

}  // namespace heteroperf
