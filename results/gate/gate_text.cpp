// This file writes the report of a gate in three forms. The console has all of it. The Markdown is
// a comment on a change: the verdict and the changed rows first, the rest folded, and parts left
// out from the end where the comment would grow beyond what a code host takes. The JUnit XML makes
// each metric a test case, since nearly every system of continuous integration shows those: a
// regression is a failure, an open question is skipped.

#include <fmt/format.h>

#include <algorithm>

#include "results/gate/gate_rows.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t most_markdown_bytes = 60 * 1024;
constexpr std::size_t most_differences = 40;
constexpr std::size_t longest_cell = 200, longest_remark = 2000;

// ---------------------------------------------------------------- console

std::string console_row(const GateRow& row) {
  return fmt::format("{:<22} {:>14} {:>14} {:>26} {:>9}  {}\n", row.name, row.base, row.head,
                     row.change, row.p, row.verdict);
}

std::string difference_lines(const GateReport& report) {
  std::string text;
  for (const EnvironmentDifference& one : report.differences) {
    text += fmt::format("  {}: {} -> {}\n", one.path, one.a.empty() ? "(none)" : one.a,
                        one.b.empty() ? "(none)" : one.b);
  }
  return text.empty() ? "" : "what else differs:\n" + text;
}

// ---------------------------------------------------------------- Markdown

/// A cell of a Markdown table, its text cut after `longest` bytes.
std::string cell(const std::string& text, std::size_t longest = longest_cell) {
  if (text.size() <= longest) return markdown_cell(text);
  return markdown_cell(text.substr(0, longest)) + " …";
}

std::string markdown_rows(const GateReport& report, const std::vector<const GatedMetric*>& rows) {
  std::string text = fmt::format(
      "| metric | base | head | {} | adjusted p | verdict |\n|---|--:|--:|--:|--:|---|\n",
      change_heading(report));
  for (const GatedMetric* gated : rows) {
    const GateRow row = gate_row(*gated);
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", cell(row.name), cell(row.base),
                        cell(row.head), cell(row.change), cell(row.p), cell(row.verdict));
  }
  return text + '\n';
}

/// A report without any metric compared nothing, so it has no differences to show either.
std::string markdown_differences(const GateReport& report) {
  if (report.metrics.empty()) return "";
  if (report.differences.empty()) return "Environment: no differences.\n\n";
  std::string text = fmt::format(
      "<details><summary>{} environment differences</summary>\n\n| | base | head "
      "|\n|---|---|---|\n",
      report.differences.size());
  const std::size_t shown = std::min(report.differences.size(), most_differences);
  for (std::size_t i = 0; i < shown; ++i) {
    const EnvironmentDifference& one = report.differences[i];
    text += fmt::format("| {} | {} | {} |\n", cell(one.path), cell(one.a), cell(one.b));
  }
  if (shown < report.differences.size()) {
    text += fmt::format("| … | {} more | |\n", report.differences.size() - shown);
  }
  return text + "\n</details>\n\n";
}

/// The metrics that pass and those that were not gated.
std::string folded(const GateReport& report) {
  const auto passed = rows_that_pass(report);
  std::string text;
  if (!passed.empty()) {
    text += fmt::format("<details><summary>{} unchanged</summary>\n\n{}</details>\n\n",
                        passed.size(), markdown_rows(report, passed));
  }
  for (const SkippedMetric& one : report.skipped) {
    text += fmt::format("Not gated: {} ({}).\n\n", cell(one.name), cell(one.reason));
  }
  return text;
}

// ---------------------------------------------------------------- JUnit

/// The element inside a test case; a null pointer where the test passes.
const char* element_of(GateVerdict verdict) {
  if (verdict == GateVerdict::regression) return "failure";
  return verdict == GateVerdict::inconclusive ? "skipped" : nullptr;
}

std::string test_case(const GatedMetric& gated) {
  const GateRow row = gate_row(gated);
  const std::string head =
      fmt::format("  <testcase classname=\"heteroperf.gate\" name=\"{}\"", html_text(row.name));
  const char* const element = element_of(gated.verdict);
  if (element == nullptr) return head + "/>\n";
  const std::string message =
      html_text(fmt::format("{}: {} to {}, {}", row.verdict, row.base, row.head, row.change));
  return fmt::format("{}>\n    <{} message=\"{}\"/>\n  </testcase>\n", head, element, message);
}

/// The verdict itself, so that a null control that alarms is seen too; or the error.
std::string verdict_case(const GateReport& report) {
  const std::string head = "  <testcase classname=\"heteroperf.gate\" name=\"verdict\"";
  if (report.error) {
    return fmt::format("{}>\n    <error type=\"{}\" message=\"{}\"/>\n  </testcase>\n", head,
                       to_string(report.error->kind()), html_text(report.error->what()));
  }
  const char* const element = element_of(report.verdict);
  if (element == nullptr) return head + "/>\n";
  return fmt::format("{}>\n    <{} message=\"{}\"/>\n  </testcase>\n", head, element,
                     html_text(gate_headline(report)));
}

}  // namespace

std::string gate_console_text(const GateReport& report) {
  std::string text = gate_headline(report) + '\n';
  text += console_row({"metric", "base", "head", change_heading(report), "adj. p", "verdict"});
  for (const GatedMetric* gated : rows_that_matter(report)) text += console_row(gate_row(*gated));
  for (const GatedMetric* gated : rows_that_pass(report)) text += console_row(gate_row(*gated));
  for (const SkippedMetric& one : report.skipped) {
    text += fmt::format("not gated: {} ({})\n", one.name, one.reason);
  }
  for (const std::string& remark : gate_remarks(report)) text += remark + '\n';
  text += difference_lines(report);
  if (!report.reproduce.empty()) text += "reproduce: " + report.reproduce + '\n';
  // Records are of others: nothing of theirs steers the terminal.
  return utf8_text(text);
}

std::string gate_markdown_text(const GateReport& report) {
  std::string text = "### " + cell(gate_headline(report), longest_remark) + "\n\n";
  const auto matter = rows_that_matter(report);
  if (!matter.empty()) text += markdown_rows(report, matter);
  for (const std::string& remark : gate_remarks(report))
    text += cell(remark, longest_remark) + "\n\n";
  const std::string reproduce =
      report.reproduce.empty() ? "" : "Reproduce: `" + utf8_text(report.reproduce) + "`\n";
  // A part that is too long is left out whole, so that no table or fold is torn apart.
  for (const std::string& part : {folded(report), markdown_differences(report), reproduce}) {
    if (text.size() + part.size() <= most_markdown_bytes) text += part;
  }
  return text;
}

std::string gate_junit_text(const GateReport& report) {
  std::string cases;
  for (const GatedMetric& gated : report.metrics) cases += test_case(gated);
  for (const SkippedMetric& one : report.skipped) {
    cases += fmt::format(
        "  <testcase classname=\"heteroperf.gate\" name=\"{}\">\n    <skipped message=\"{}\"/>\n"
        "  </testcase>\n",
        html_text(one.name), html_text(one.reason));
  }
  cases += verdict_case(report);
  // The verdict has a test case of its own, which counts like a metric.
  const auto ended_as = [&](GateVerdict verdict) {
    return report.count(verdict) + (!report.error && report.verdict == verdict ? 1 : 0);
  };
  const std::size_t tests = report.metrics.size() + report.skipped.size() + 1;
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"heteroperf gate\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
      "skipped=\"{}\">\n{}</testsuite>\n",
      tests, ended_as(GateVerdict::regression), report.error ? 1 : 0,
      ended_as(GateVerdict::inconclusive) + report.skipped.size(), cases);
}

}  // namespace heteroperf
