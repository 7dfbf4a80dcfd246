#include "tests/unit/results/report_parts.hpp"

#include <algorithm>

#include "results/record/record.hpp"

namespace heteroperf {

ReportRun report_run(const SampleRun& sample) {
  ReportRun run;
  run.journal = sample.journal();
  run.summary = summarize(run.journal);
  run.validity = judge(run.journal, run.summary);
  run.record = build_record(run.journal, run.summary, run.validity);
  return run;
}

const ReportChart* find_chart(const ReportPart& part, const std::string& id) {
  for (const ReportSection& section : part.sections) {
    for (const ReportChart& chart : section.charts) {
      if (chart.id == id) return &chart;
    }
  }
  return nullptr;
}

bool has_notice(const ReportPart& part, NoticeLevel level, const std::string& text) {
  const auto& notices = part.sections.front().notices;
  return std::any_of(notices.begin(), notices.end(), [&](const ReportNotice& notice) {
    return notice.level == level && notice.text.find(text) != std::string::npos;
  });
}

bool has_figure(const ReportPart& part, const std::string& name) {
  const auto& figures = part.sections.front().figures;
  return std::any_of(figures.begin(), figures.end(),
                     [&](const ReportFigure& figure) { return figure.name == name; });
}

std::vector<std::string> labels_of(const Table& table) {
  std::vector<std::string> labels;
  for (const TableColumn& column : table.columns) labels.push_back(column.label);
  return labels;
}

std::vector<std::string> cells_of(const Table& table, std::size_t row) {
  std::vector<std::string> cells;
  for (const Datum& cell : table.rows.at(row)) cells.push_back(value_text(cell, Unit::none));
  return cells;
}

std::string html_of(const ReportPart& part) { return report_html({"HeteroPerf report", {part}}); }

}  // namespace heteroperf
