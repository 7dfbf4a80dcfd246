#pragma once

#include <string>
#include <vector>

#include "results/report/report_chart.hpp"

namespace heteroperf {

/// A figure of the first importance, in large letters.
struct ReportFigure {
  std::string name, value;
  std::string detail;  ///< the interval, the target
};

enum class NoticeLevel { good, note, bad };

/// A sentence that must not be overlooked.
struct ReportNotice {
  NoticeLevel level = NoticeLevel::note;
  std::string text;
};

/// A part of a page under one heading. The writer shows the lists in a fixed order, whatever order
/// they were filled in.
struct ReportSection {
  std::string title;
  std::vector<ReportNotice> notices = {};
  std::vector<std::string> paragraphs = {};
  std::vector<ReportFigure> figures = {};
  std::vector<ReportChart> charts = {};
  std::vector<Table> tables = {};
};

/// One run, or what several runs say together.
struct ReportPart {
  std::string title, subtitle;
  std::vector<ReportSection> sections;
};

/// A whole report as data. Texts may hold any bytes; the writer makes them UTF-8.
struct ReportPage {
  std::string title;
  std::vector<ReportPart> parts;
};

/// One HTML file with style, script, chart library and data inside: it asks for nothing else.
/// Tables stand in the HTML itself, so that it reads without its script.
std::string report_html(const ReportPage& page);

/// The charts as the page's script reads them: JSON that may stand inside <script>.
std::string report_data_text(const ReportPage& page);

}  // namespace heteroperf
