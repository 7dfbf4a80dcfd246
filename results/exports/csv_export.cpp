// Exports one run as CSV: either the numbers of its record, one per row with unit and interval, or
// one of the tables of its journal (steps, trials, evaluations, ranks). The tables are those of
// samples.h5, so both hold the same columns. Counts of operations pass 64 bits; samples.h5 has them
// as two columns, a high and a low half, and this file joins the halves into one decimal number,
// which any reader of text can take.

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "metrics/base/name_table.hpp"
#include "metrics/ops.hpp"
#include "results/exports/run_export.hpp"
#include "results/record/sample_columns.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

constexpr const char* metrics_table = "metrics";

/// A real as text. json_number() knows no values that are not finite, so these get words of their
/// own.
std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return json_number(value);
}

std::string cell_of(const SampleColumn& column, std::size_t row) {
  return std::visit(
      [&]<class T>(const std::vector<T>& values) {
        if constexpr (std::is_same_v<T, std::string>) return csv_cell(values[row]);
        if constexpr (std::is_same_v<T, double>) return real_text(values[row]);
        return fmt::format("{}", values[row]);
      },
      column.values);
}

/// The high and low halves of a count beside each other are one column here.
bool is_high_half(const SampleColumn& column) { return std::strcmp(column.name, "ops_hi") == 0; }

/// The low half is the column after the high one.
std::string whole_count(const SampleColumn& high, const SampleColumn& low, std::size_t row) {
  using Halves = std::vector<std::uint64_t>;
  return Ops::from_words(std::get<Halves>(high.values)[row], std::get<Halves>(low.values)[row])
      .to_string();
}

/// The names of the columns, then a row per value. Where a high half is met, the column after it is
/// consumed as well.
std::string sample_csv(const SampleTable& table) {
  std::string text;
  const auto& columns = table.columns;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const bool halves = is_high_half(columns[i]);
    text += (i == 0 ? "" : ",") + std::string(halves ? "ops_strict" : columns[i].name);
    i += halves ? 1 : 0;
  }
  text += '\n';
  const std::size_t rows =
      std::visit([](const auto& values) { return values.size(); }, columns.front().values);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) text += ',';
      if (is_high_half(columns[i])) {
        text += whole_count(columns[i], columns[i + 1], row);
        ++i;
      } else {
        text += cell_of(columns[i], row);
      }
    }
    text += '\n';
  }
  return text;
}

std::string metrics_csv(const ExportedRun& run) {
  Table table{"", "", {{"metric"}, {"value"}, {"unit"}, {"ci95_low"}, {"ci95_high"}}};
  for (const RecordMetric& metric : record_metrics()) {
    const auto& value = run.digest.metric(metric.name);
    if (!value || *metric.family == '\0') continue;
    const auto& ci95 = value->ci95;
    table.add({metric.name, value->text, run.digest.unit_of(metric),
               ci95 ? Datum(ci95->low) : Datum(), ci95 ? Datum(ci95->high) : Datum()});
  }
  return csv_text(table);
}

}  // namespace

std::vector<std::string> csv_table_names() {
  return {metrics_table, "steps", "trials", "evaluations", "ranks", "rank_steps"};
}

std::string csv_export_text(const ExportedRun& run, const std::string& table) {
  if (table.empty() || table == metrics_table) return metrics_csv(run);
  for (const SampleTable& samples : sample_tables(run.journal)) {
    if (table == samples.name) return sample_csv(samples);
  }
  throw unknown_name("table", table, csv_table_names());
}

}  // namespace heteroperf
