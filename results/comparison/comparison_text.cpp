// This file writes a comparison for people, as a table on the console and as Markdown for a comment
// on a change. Both say the verdict first, then one row per metric with the change of B against A,
// then what was not compared and why, and last what else differs between the two environments, as
// that is where an unexpected change usually has its cause.

#include <fmt/format.h>

#include "results/comparison/metric_text.hpp"
#include "results/comparison/run_comparison.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

/// The verdict, the ratio, and the interval, as far as there are any.
std::string headline(const RunComparison& comparison) {
  std::string text = fmt::format("B is {}", to_string(comparison.verdict));
  if (comparison.verdict == SpeedVerdict::inconclusive) text = "inconclusive";
  if (!comparison.ratio) return text;
  text += fmt::format(": {:.4g} x the throughput of A", *comparison.ratio);
  if (!comparison.ratio_ci95) return text;
  return text + fmt::format(" (95 % CI {:.4g} to {:.4g}, {})", comparison.ratio_ci95->low,
                            comparison.ratio_ci95->high,
                            comparison.basis == IntervalBasis::runs ? "run to run" : "within runs");
}

std::string value_text(const MetricComparison& one, const MetricValue& value) {
  return metric_value_text(*one.metric, one.metric->kind, value);
}

/// The change in percent with its interval in percent. An exact metric whose first values agree may
/// still differ among the runs of a side.
std::string change_of(const MetricComparison& one) {
  if (one.metric->kind == MetricKind::exact) {
    return one.changed && one.a == one.b ? "differs between runs" : exact_change_text(one.a, one.b);
  }
  if (!one.ratio) return "differs";
  std::string text = change_text(*one.ratio);
  if (!one.ratio_ci95) return text;
  return text + fmt::format(" [{:+.1f}, {:+.1f}]", 100 * (one.ratio_ci95->low - 1),
                            100 * (one.ratio_ci95->high - 1));
}

/// The word for a verdict. The verdicts are named after speed, and memory or a count is not slower,
/// so exact metrics are worse or better.
const char* word_of(const MetricComparison& one) {
  if (one.metric->kind == MetricKind::statistical) return to_string(one.verdict);
  if (!one.changed) return "same";
  if (one.verdict == SpeedVerdict::slower) return "worse";
  return one.verdict == SpeedVerdict::faster ? "better" : "differs";
}

std::string none_or(const std::string& text) { return text.empty() ? "(none)" : text; }

}  // namespace

std::string comparison_console_text(const RunComparison& comparison) {
  std::string text =
      fmt::format("A {} ({} run{})\nB {} ({} run{})\n", comparison.name_a, comparison.runs_a,
                  comparison.runs_a == 1 ? "" : "s", comparison.name_b, comparison.runs_b,
                  comparison.runs_b == 1 ? "" : "s");
  text += headline(comparison) + '\n';
  for (const MetricKind kind : {MetricKind::statistical, MetricKind::exact}) {
    text += fmt::format("{:<22} {:>14} {:>14} {:>24}\n", to_string(kind), "A", "B", "change");
    for (const MetricComparison& one : comparison.metrics) {
      if (one.metric->kind != kind) continue;
      text +=
          fmt::format("  {:<20} {:>14} {:>14} {:>24}  {}\n", one.metric->name,
                      value_text(one, one.a), value_text(one, one.b), change_of(one), word_of(one));
    }
  }
  for (const SkippedMetric& one : comparison.skipped) {
    text += fmt::format("not compared: {} ({})\n", one.name, one.reason);
  }
  for (const std::string& note : comparison.notes) text += "note: " + note + '\n';
  text +=
      comparison.differences.empty() ? "the environments are the same\n" : "what else differs:\n";
  for (const EnvironmentDifference& one : comparison.differences) {
    text += fmt::format("  {}: {} -> {}\n", one.path, none_or(one.a), none_or(one.b));
  }
  return text;
}

std::string comparison_markdown_text(const RunComparison& comparison) {
  std::string text =
      fmt::format("### {}\n\nA `{}` ({} runs), B `{}` ({} runs)\n\n", headline(comparison),
                  utf8_text(comparison.name_a), comparison.runs_a, utf8_text(comparison.name_b),
                  comparison.runs_b);
  text += "| metric | kind | A | B | change [95 % CI] | |\n|---|---|--:|--:|--:|---|\n";
  for (const MetricComparison& one : comparison.metrics) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", one.metric->name,
                        to_string(one.metric->kind), markdown_cell(value_text(one, one.a)),
                        markdown_cell(value_text(one, one.b)), change_of(one), word_of(one));
  }
  text += '\n';
  for (const SkippedMetric& one : comparison.skipped) {
    text += fmt::format("Not compared: {} ({}).\n\n", one.name, markdown_cell(one.reason));
  }
  for (const std::string& note : comparison.notes) text += "Note: " + note + "\n\n";
  if (comparison.differences.empty()) return text + "The environments are the same.\n";
  text += "| differs | A | B |\n|---|---|---|\n";
  for (const EnvironmentDifference& one : comparison.differences) {
    text += fmt::format("| {} | {} | {} |\n", markdown_cell(one.path), markdown_cell(one.a),
                        markdown_cell(one.b));
  }
  return text;
}

}  // namespace heteroperf
