// This file writes the report of a sweep as tables for the console, for Markdown, and as CSV. Each
// workload has a table of its own, since rates of unlike work do not belong below each other.
// Threads per rank have a column only where they differ. The CSV keeps every row in one table, with
// the raw numbers and an empty cell where there is none.

#include <fmt/format.h>

#include <algorithm>

#include "results/scaling/sweep_report.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"
#include "results/text/text_table.hpp"

namespace heteroperf {
namespace {

std::string efficiency_text(const SweepRow& row) {
  if (!row.efficiency) return "-";
  return percent_with_interval(row.efficiency->value, row.efficiency->ci95, row.runs);
}

bool threads_differ(const SweepReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(), [&](const SweepRow& row) {
    return row.threads != report.rows.front().threads;
  });
}

/// A column without a name and with empty cells does not show.
TextTable empty_table(const SweepReport& report) {
  return TextTable({{"point", CellSide::left},
                    {"devices"},
                    {threads_differ(report) ? "threads" : ""},
                    {"runs"},
                    {"throughput [95 % CI]"},
                    {"OPS [95 % CI]"},
                    {"step"},
                    {"speedup"},
                    {"efficiency [95 % CI]"},
                    {"scaling", CellSide::left},
                    {"validity", CellSide::left},
                    {"", CellSide::left}});
}

void add_row(const SweepReport& report, const SweepRow& row, TextTable& table) {
  const auto rate_text = [&](const RepeatedRate& rate, const std::string& unit) {
    return with_interval(rate.value, rate.ci95, row.runs, unit);
  };
  table.add({point_text(report.index.points[row.point]), fmt::format("{}", row.devices),
             threads_differ(report) ? row.threads : "", fmt::format("{}", row.runs),
             rate_text(row.throughput, row.unit), rate_text(row.ops_per_second, operations_unit),
             fmt::format("{:.4g} s", row.step_time_s),
             row.speedup ? fmt::format("{:.3f}", *row.speedup) : "-", efficiency_text(row),
             row.scaling.empty() ? "-" : row.scaling, row.validity, row.crowding});
}

enum class Layout { console, markdown };

/// Rows of one workload have a table of their own.
std::string tables_text(const SweepReport& report, Layout layout) {
  std::string text;
  for (std::size_t i = 0; i < report.rows.size();) {
    const std::string& workload = report.rows[i].workload;
    TextTable table = empty_table(report);
    for (; i < report.rows.size() && report.rows[i].workload == workload; ++i) {
      add_row(report, report.rows[i], table);
    }
    text += layout == Layout::console
                ? line_text(workload) + '\n' + table.text("  ")
                : fmt::format("\n**{}**\n\n{}\n", markdown_cell(workload), table.markdown());
  }
  return text;
}

/// Says how much of the plan is done; a sweep whose index was made again from its runs does not
/// know the plan, so it speaks of runs that were found.
std::string heading(const SweepReport& report) {
  const SweepIndex& index = report.index;
  return fmt::format(
      "{} of {} runs{} are complete: {} point{}, {} repetition{} each, seeds {} to {}\n",
      report.complete, index.runs.size(), index.rebuilt() ? " that were found" : "",
      index.points.size(), index.points.size() == 1 ? "" : "s", index.repeats,
      index.repeats == 1 ? "" : "s", index.first_seed, index.first_seed + index.repeats - 1);
}

/// Facts that the tables do not show, a line each.
std::vector<std::string> remarks(const SweepReport& report) {
  std::vector<std::string> lines;
  for (const UnscoredRun& run : report.unscored) {
    lines.push_back(fmt::format("without a score: {} ({}){}", line_text(run.folder), run.state,
                                run.reason.empty() ? "" : ": " + line_text(run.reason)));
  }
  for (const std::string& fact : report.index.unknown) {
    lines.push_back("not known: " + line_text(fact));
  }
  return lines;
}

/// "value,low,high"; empty where there is none.
std::string rate_cells(const std::optional<RepeatedRate>& rate) {
  if (!rate) return ",,";
  if (!rate->ci95) return fmt::format("{},,", rate->value);
  return fmt::format("{},{},{}", rate->value, rate->ci95->low, rate->ci95->high);
}

}  // namespace

std::string sweep_report_console_text(const SweepReport& report) {
  std::string text = heading(report) + tables_text(report, Layout::console);
  for (const std::string& line : remarks(report)) text += line + '\n';
  return text + "sweep " + line_text(report.folder.string()) + '\n';
}

std::string sweep_report_markdown_text(const SweepReport& report) {
  std::string text = heading(report) + tables_text(report, Layout::markdown);
  for (const std::string& line : remarks(report)) text += "- " + markdown_cell(line) + '\n';
  return text;
}

std::string sweep_report_csv_text(const SweepReport& report) {
  std::string text =
      "workload,point,devices,threads,runs,throughput,throughput_low,throughput_high,"
      "throughput_unit,ops_per_second,ops_per_second_low,ops_per_second_high,step_time_s,speedup,"
      "efficiency,efficiency_low,efficiency_high,scaling,validity,crowding\n";
  for (const SweepRow& row : report.rows) {
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_cell(row.workload),
        csv_cell(point_text(report.index.points[row.point])), row.devices, csv_cell(row.threads),
        row.runs, rate_cells(row.throughput), csv_cell(row.unit), rate_cells(row.ops_per_second),
        row.step_time_s, row.speedup ? fmt::format("{}", *row.speedup) : "",
        rate_cells(row.efficiency), csv_cell(row.scaling), row.validity, csv_cell(row.crowding));
  }
  return text;
}

}  // namespace heteroperf
