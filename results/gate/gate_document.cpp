// The forms of a gate's report. The headline is one line that stands alone in a list of checks: the
// verdict, how many metrics changed, how many runs that rests on, if the null control is clean, and
// the smallest loss that these runs could have seen. Without that last number a pass says little:
// it may be that nothing changed, or that nothing could be seen.
//
// Inside the program widths and limits are logarithms, because errors add up there; a reader of the
// document wants fractions, so they are converted here. A gate that ended early has `error` in
// place of `verdict`, so that a script cannot take half a measurement for a pass. The Markdown is a
// comment on a change: the verdict and the changed rows first, the rest folded, and parts left out
// from the end where the comment would grow beyond what a code host takes. The JUnit XML makes each
// metric a test case, since nearly every system of continuous integration shows those: a regression
// is a failure, an open question is skipped.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "results/comparison/run_comparison.hpp"
#include "results/gate/gate_report.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t most_markdown_bytes = 60 * 1024;
constexpr std::size_t most_differences = 40;
constexpr std::size_t longest_cell = 200, longest_remark = 2000;

// ---------------------------------------------------------------- words

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

/// "1 worse, 2 undecided of 6 metrics"; kinds without a metric are left out.
std::string count_text(const GateReport& report) {
  constexpr std::pair<GateVerdict, const char*> count_words[] = {
      {GateVerdict::regression, "worse"},
      {GateVerdict::improved, "better"},
      {GateVerdict::inconclusive, "undecided"}};
  std::string text;
  for (const auto& [verdict, word] : count_words) {
    const std::size_t count = report.count(verdict);
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, word);
  }
  return fmt::format("{} of {} metrics", text.empty() ? "0 changed" : text, report.metrics.size());
}

/// The amount of evidence in the unit of the order in which the runs ran.
std::string runs_text(const GateReport& report) {
  if (report.order == RunOrder::apart) {
    return plural(report.blocks, "run") + " of each, not interleaved";
  }
  if (report.order == RunOrder::lockstep) {
    return plural(report.blocks, "pair") + " of processes in lockstep";
  }
  return plural(report.blocks, "block") + " of base, head, head, base";
}

/// The noise is the widest half width of the control, as a percentage of the value.
std::string control_text(const NullControl& control) {
  if (!control.measured) return "no null control";
  return fmt::format("null control {} (noise {:.1f} %)", control.alarm ? "ALARMS" : "clean",
                     100 * std::expm1(control.noise));
}

}  // namespace

std::string gate_headline(const GateReport& report) {
  if (report.error) {
    return fmt::format("ERROR: {}{}", report.error->problems().front().problem,
                       report.blocks == 0 ? "" : " | after " + runs_text(report));
  }
  const std::string text =
      fmt::format("{}: {} | {} | {}", upper(to_string(report.verdict)), count_text(report),
                  runs_text(report), control_text(report.control));
  if (!report.resolution) return text;
  return text + fmt::format(" | resolves {:.1f} % (threshold {:.2g} %)", 100 * *report.resolution,
                            100 * report.threshold);
}

namespace {

/// The change of a metric; too few blocks have no interval.
std::string change_of(const GatedMetric& gated) {
  if (gated.kind == MetricKind::exact) return exact_change_text(gated.base, gated.head);
  const std::string text = change_with_interval(*gated.ratio, gated.ratio_ci95);
  return gated.ratio_ci95 ? text : text + " (too few)";
}

/// True for a metric that was judged by its interval.
bool has_evidence(const GatedMetric& gated) {
  return gated.kind == MetricKind::statistical && gated.ratio_ci95.has_value();
}

Datum verdict_of(const GatedMetric& gated) {
  constexpr Tone tones[] = {Tone::plain, Tone::good, Tone::doubtful, Tone::bad};
  std::string text = to_string(gated.verdict);
  if (has_evidence(gated)) {
    text += fmt::format(" (limit {:.1f} %)", -100 * std::expm1(-gated.judgement.limit));
  }
  return Datum(to_string(gated.verdict))
      .as(text)
      .judged(tones[static_cast<std::size_t>(gated.verdict)]);
}

using GatedRows = std::vector<const GatedMetric*>;

/// The metrics with these verdicts, one verdict after another.
GatedRows rows_with(const GateReport& report, std::initializer_list<GateVerdict> verdicts) {
  GatedRows rows;
  for (const GateVerdict verdict : verdicts) {
    for (const GatedMetric& gated : report.metrics) {
      if (gated.verdict == verdict) rows.push_back(&gated);
    }
  }
  return rows;
}

/// Worse rows come first, then undecided and better ones.
GatedRows rows_that_matter(const GateReport& report) {
  return rows_with(report,
                   {GateVerdict::regression, GateVerdict::inconclusive, GateVerdict::improved});
}

/// Everything else there is to say, a sentence each: the error's problems, why it is inconclusive,
/// notes.
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
        "lockstep: {} quads of turns of {}; fresh processes of one program differ by {:.2f} "
        "% (standard deviation); a program that stood still used {:.2f} % of a core",
        facts.quads, plural(facts.steps_per_turn, "step"), 100 * facts.process_spread,
        100 * facts.idle_cpu_share));
  }
  for (const std::string& note : report.notes) remarks.push_back(note);
  return remarks;
}

// ---------------------------------------------------------------- tables

/// The metrics in this order, with the columns that people or programs read.
Table gated_table(const GateReport& report, const GatedRows& rows, Audience audience) {
  using enum Unit;
  using enum Audience;
  const bool blocks = report.order == RunOrder::blocks;
  Table table{"metrics", "", {}, {}, audience};
  for (const GatedMetric* gated : rows) {
    const RecordMetric& metric = *gated->metric;
    const auto side = [&](const MetricValue& value) {
      return metric_datum(metric, gated->kind, value, gated->unit);
    };
    const auto if_judged = [&](Datum value) { return has_evidence(*gated) ? value : Datum(); };
    const double p = gated->judgement.p_adjusted, limit = -std::expm1(-gated->judgement.limit);
    table.add_cells(
        {{"name", "metric", none, metric.name},
         {"kind", "kind", none, to_string(gated->kind), programs},
         {"direction", "direction that is better", none, to_string(metric.direction), programs},
         {"unit", "unit", none, gated->unit, programs},
         {"base", "base", none, side(gated->base)},
         {"head", "head", none, side(gated->head)},
         {"", blocks ? "change [bootstrap 95 %]" : "change [t 95 %]", none, change_of(*gated),
          people},
         {"ratio", "head / base", ratio, gated->ratio, programs},
         {"ci95", "95 % interval of head / base", ratio, if_judged(gated->ratio_ci95), programs},
         {"t_ci95", "the same by Student's t", ratio, if_judged(gated->t_ci95), programs},
         {"p_adjusted", "adj. p", ratio, if_judged(Datum(p).as(fmt::format("{:.2g}", p)))},
         {"limit", "change that is a regression", fraction, if_judged(limit), programs},
         {"more_blocks", "blocks that would settle it", count, if_judged(gated->more_blocks),
          programs},
         {"verdict", "verdict", none, verdict_of(*gated)}});
  }
  return table;
}

/// Half widths of a difference of logarithms are told as the fraction by which the larger value
/// exceeds. A control that was not measured has no numbers: they would be those of the gain.
void add_facts(Document& document, const GateReport& report) {
  document.data("threshold", "loss that is a regression", Unit::fraction, report.threshold);
  document.data("blocks", "blocks, or pairs of processes", Unit::count, report.blocks);
  document.data("order", "order of the runs", Unit::none, to_string(report.order));
  document.data("resolution", "smallest loss that could be seen", Unit::fraction,
                report.resolution);
  if (report.lockstep) {
    const LockstepFacts& facts = *report.lockstep;
    document.data("lockstep.quads", "quads of turns", Unit::count, facts.quads);
    document.data("lockstep.steps_per_turn", "steps of a turn", Unit::count, facts.steps_per_turn);
    document.data("lockstep.process_spread", "spread between fresh processes", Unit::fraction,
                  std::expm1(facts.process_spread));
    document.data("lockstep.idle_cpu_share", "share of a core while standing still", Unit::fraction,
                  facts.idle_cpu_share);
  }
  document.data("more_blocks", "blocks that would settle all", Unit::count, report.more_blocks);
  const std::string& why = report.why_inconclusive;
  document.data("why_inconclusive", "why it is inconclusive", Unit::none,
                why.empty() ? Datum() : why);
  const NullControl& control = report.control;
  document.data("null_control.measured", "null control measured", Unit::none, control.measured);
  if (!control.measured) return;
  document.data("null_control.alarm", "null control alarms", Unit::none, control.alarm);
  document.data("null_control.noise", "noise", Unit::fraction, std::expm1(control.noise));
  document.data("null_control.p_adjusted", "adjusted p of the null control", Unit::ratio,
                control.p_adjusted);
}

// ---------------------------------------------------------------- Markdown

/// A cell of a Markdown table, its text cut after `longest` bytes.
std::string cell(const std::string& text, std::size_t longest = longest_cell) {
  if (text.size() <= longest) return markdown_cell(text);
  return markdown_cell(text.substr(0, longest)) + " …";
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
    const EnvironmentDifference& difference = report.differences[i];
    text += fmt::format("| {} | {} | {} |\n", cell(difference.path), cell(difference.a),
                        cell(difference.b));
  }
  if (shown < report.differences.size()) {
    text += fmt::format("| … | {} more | |\n", report.differences.size() - shown);
  }
  return text + "\n</details>\n\n";
}

/// The metrics that pass and those that were not gated.
std::string folded(const GateReport& report) {
  const auto passed = rows_with(report, {GateVerdict::pass});
  std::string text;
  if (!passed.empty()) {
    text +=
        fmt::format("<details><summary>{} unchanged</summary>\n\n{}\n</details>\n\n", passed.size(),
                    markdown_text(gated_table(report, passed, Audience::people)));
  }
  for (const SkippedMetric& metric : report.skipped) {
    text += fmt::format("Not gated: {} ({}).\n\n", cell(metric.name), cell(metric.reason));
  }
  return text;
}

// ---------------------------------------------------------------- JUnit

/// A test case with what it contains: nothing where the test passes.
std::string test_case(const std::string& name, const std::string& content) {
  const std::string head =
      fmt::format("  <testcase classname=\"heteroperf.gate\" name=\"{}\"", html_text(name));
  return content.empty() ? head + "/>\n"
                         : fmt::format("{}>\n    {}/>\n  </testcase>\n", head, content);
}

std::string with_message(const std::string& element, const std::string& message) {
  return fmt::format("<{} message=\"{}\"", element, html_text(message));
}

/// A verdict as what its test case contains.
std::string content_of(GateVerdict verdict, const std::string& message) {
  if (verdict == GateVerdict::regression) return with_message("failure", message);
  return verdict == GateVerdict::inconclusive ? with_message("skipped", message) : "";
}

std::string metric_case(const GatedMetric& gated) {
  const auto side = [&](const MetricValue& value) {
    return metric_datum(*gated.metric, gated.kind, value, gated.unit).shown;
  };
  return test_case(
      gated.metric->name,
      content_of(gated.verdict, fmt::format("{}: {} to {}, {}", verdict_of(gated).shown,
                                            side(gated.base), side(gated.head), change_of(gated))));
}

/// The verdict itself, so that a null control that alarms is seen too; or the error.
std::string verdict_case(const GateReport& report) {
  if (!report.error) {
    return test_case("verdict", content_of(report.verdict, gate_headline(report)));
  }
  const std::string element = fmt::format("error type=\"{}\"", to_string(report.error->kind()));
  return test_case("verdict", with_message(element, report.error->what()));
}

}  // namespace

Document gate_document(const GateReport& report) {
  Document document{"heteroperf-gate"};
  document.heading(gate_headline(report));
  if (report.error) {
    add_error(document, *report.error);
  } else {
    document.data("verdict", "verdict", Unit::none, to_string(report.verdict));
  }
  add_facts(document, report);
  GatedRows all;
  for (const GatedMetric& gated : report.metrics) all.push_back(&gated);
  document.table(gated_table(report, all, Audience::programs));
  auto rows = rows_that_matter(report);
  for (const GatedMetric* gated : rows_with(report, {GateVerdict::pass})) rows.push_back(gated);
  document.table(gated_table(report, rows, Audience::people));
  add_skipped(document, "gated", report.skipped);
  for (const std::string& remark : gate_remarks(report)) document.line(remark);
  add_differences(document, report.differences);
  document.data("notes", "notes", Unit::none, report.notes);
  document.field("reproduce", "reproduce:", Unit::none,
                 report.reproduce.empty() ? Datum() : report.reproduce);
  return document;
}

std::string gate_markdown_text(const GateReport& report) {
  std::string text = "### " + cell(gate_headline(report), longest_remark) + "\n\n";
  const auto matter = rows_that_matter(report);
  if (!matter.empty()) {
    text += markdown_text(gated_table(report, matter, Audience::people)) + '\n';
  }
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
  for (const GatedMetric& gated : report.metrics) cases += metric_case(gated);
  for (const SkippedMetric& metric : report.skipped) {
    cases += test_case(metric.name, with_message("skipped", metric.reason));
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
