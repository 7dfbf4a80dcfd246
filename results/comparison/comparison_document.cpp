// The document of `compare`: the verdict first, then a row per metric with the change of B against
// A, then what was not compared and why, and last what else differs between the two environments,
// as that is where an unexpected change usually has its cause. Keys that have no value are left out
// and never null, so that a reader tells "not measured" from a number.

#include <fmt/format.h>

#include "results/comparison/run_comparison.hpp"
#include "results/text/number_text.hpp"

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

/// The change in percent with its interval in percent. An exact metric whose first values agree may
/// still differ among the runs of a side.
std::string change_of(const MetricComparison& compared) {
  if (compared.metric->kind == MetricKind::exact) {
    return compared.changed && compared.a == compared.b ? "differs between runs"
                                                        : exact_change_text(compared.a, compared.b);
  }
  return compared.ratio ? change_with_interval(*compared.ratio, compared.ratio_ci95) : "differs";
}

/// The word for a verdict. The verdicts are named after speed, and memory or a count is not slower,
/// so exact metrics are worse or better.
Datum word_of(const MetricComparison& compared) {
  const bool exact = compared.metric->kind == MetricKind::exact;
  switch (compared.verdict) {
    case SpeedVerdict::slower:
      return Datum(exact ? "worse" : "slower").judged(Tone::bad);
    case SpeedVerdict::faster:
      return Datum(exact ? "better" : "faster").judged(Tone::good);
    case SpeedVerdict::same:
      return "same";
    case SpeedVerdict::inconclusive:
      break;
  }
  return Datum(exact ? "differs" : "inconclusive").judged(Tone::doubtful);
}

Table compared_table(const RunComparison& comparison) {
  using enum Unit;
  using enum Audience;
  Table table{"metrics"};
  for (const MetricComparison& compared : comparison.metrics) {
    const RecordMetric& metric = *compared.metric;
    const bool exact = metric.kind == MetricKind::exact;
    const auto side = [&](const MetricValue& value) {
      return metric_datum(metric, metric.kind, value, compared.unit);
    };
    const Datum basis = compared.ratio_ci95 ? to_string(compared.basis) : Datum(),
                verdict = exact ? Datum() : to_string(compared.verdict);
    table.add_cells(
        {{"name", "metric", none, metric.name},
         {"kind", "kind", none, to_string(metric.kind)},
         {"direction", "direction that is better", none, to_string(metric.direction), programs},
         {"unit", "unit", none, compared.unit, programs},
         {"a", "A", none, side(compared.a)},
         {"b", "B", none, side(compared.b)},
         {"", "change [95 % CI]", none, change_of(compared), people},
         {"ratio", "B / A", ratio, compared.ratio, programs},
         {"ci95", "95 % interval of B / A", ratio, compared.ratio_ci95, programs},
         {"basis", "what the interval is made of", none, basis, programs},
         {"changed", "B differs from A", none, exact ? compared.changed : Datum(), programs},
         {"verdict", "verdict on B", none, verdict, programs},
         {"", "verdict", none, word_of(compared), people}});
  }
  return table;
}

}  // namespace

Document comparison_document(const RunComparison& comparison) {
  Document document{"heteroperf-comparison"};
  document.heading(headline(comparison));
  document.data("verdict", "verdict on the throughput of B", Unit::none,
                to_string(comparison.verdict));
  document.data("ratio", "throughput of B / A", Unit::ratio, comparison.ratio);
  document.data("ci95", "95 % interval of the ratio", Unit::ratio, comparison.ratio_ci95);
  document.data("basis", "what the interval is made of", Unit::none,
                comparison.ratio_ci95 ? to_string(comparison.basis) : Datum());
  const auto side = [&](const std::string& key, const char* label, const std::string& run_id,
                        std::size_t runs) {
    document.field(key + ".run_id", label, Unit::none, run_id, plural(runs, "run"));
    document.data(key + ".runs", "runs", Unit::count, runs);
  };
  side("a", "A", comparison.name_a, comparison.runs_a);
  side("b", "B", comparison.name_b, comparison.runs_b);
  document.table(compared_table(comparison));
  add_skipped(document, "compared", comparison.skipped);
  add_differences(document, comparison.differences);
  add_notes(document, comparison.notes);
  return document;
}

void add_skipped(Document& document, const char* word, const std::vector<SkippedMetric>& skipped) {
  Table table{"skipped", "", {}, {}, Audience::programs};
  for (const SkippedMetric& metric : skipped) {
    document.line(fmt::format("not {}: {} ({})", word, metric.name, metric.reason));
    table.add_cells({{"name", "metric", Unit::none, metric.name},
                     {"reason", "reason", Unit::none, metric.reason}});
  }
  document.table(std::move(table));
}

void add_differences(Document& document, const std::vector<EnvironmentDifference>& differences) {
  Table table{"differences"};
  const auto or_none = [](const std::string& text) {
    return Datum(text).as(text.empty() ? "(none)" : "");
  };
  for (const auto& [path, a, b] : differences) {
    table.add_cells({{"path", "what else differs", Unit::none, path},
                     {"a", "A", Unit::none, or_none(a)},
                     {"b", "B", Unit::none, or_none(b)}});
  }
  if (differences.empty()) document.line("the environments are the same");
  document.table(std::move(table));
}

}  // namespace heteroperf
