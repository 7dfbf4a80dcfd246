#pragma once

#include <string>
#include <vector>

#include "results/report/report_page.hpp"
#include "results/report/report_run.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {

/// As read_report_run() would read it.
ReportRun report_run(const SampleRun& sample);

/// The chart of this id in any section, or null.
const ReportChart* find_chart(const ReportPart& part, const std::string& id);
/// Whether the first section has a notice of that level with that text in it.
bool has_notice(const ReportPart& part, NoticeLevel level, const std::string& text);
/// Whether the first section has a figure of that name.
bool has_figure(const ReportPart& part, const std::string& name);

/// The words of a table's columns, and of a row, as people see them.
std::vector<std::string> labels_of(const Table& table);
std::vector<std::string> cells_of(const Table& table, std::size_t row);

/// The part alone as a page.
std::string html_of(const ReportPart& part);

}  // namespace heteroperf
