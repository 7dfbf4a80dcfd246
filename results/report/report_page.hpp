#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/text/document.hpp"

namespace heteroperf {

/// A table for people, whose columns are named with their units: "step time [s]".
Table report_table(std::string caption, const std::vector<std::string>& columns);

enum class ChartKind {
  lines,         ///< series over x
  bars,          ///< a group of bars per category, one per series
  stacked_bars,  ///< the series of a category on top of each other
  spans,         ///< a lane per category; what lies on it from one x to another
  grid,          ///< a lane per series, coloured by its values between neighbouring `edges`
};
enum class AxisScale { linear, from_zero, logarithmic };
enum class SeriesMark { line, steps, points, dashed };
/// The meaning of the deep end of a grid's colours; each has colours of its own.
enum class GridTone { bad, good };

struct ChartAxis {
  std::string label, unit = {};
  AxisScale scale = AxisScale::linear;
  std::optional<Interval> least = {};    ///< the range that it shows at least
  std::vector<std::string> places = {};  ///< the names of 1, 2, …; empty: they are numbers
  /// Returns the value as a cell of a table: the place's name, else number_cell().
  std::string cell(double value) const;
  std::string title() const { return unit.empty() ? label : label + " [" + unit + "]"; }
};

/// Values that are not finite are gaps.
struct ChartSeries {
  std::string name;
  SeriesMark mark = SeriesMark::line;
  std::vector<double> x = {};  ///< for `lines`
  std::vector<double> y = {};  ///< where there is no x, a value per category, or per pair of edges
  std::vector<double> low = {}, high = {};  ///< 95 % interval of each y; empty: none
  std::vector<std::string> labels = {};     ///< a name of each point; empty: nothing to add
  bool right = false;                       ///< on the right axis

  void add(double at, double value);
};

/// Something on a lane; `series` tells its kind.
struct ChartSpan {
  std::size_t lane = 0, series = 0;
  double from = 0, to = 0;
  std::string label;
};

/// Part of the x axis that is shaded.
struct ChartBand {
  double from = 0, to = 0;
  std::string label;
};

/// A line across the chart: at this x, or at this y.
struct ChartRule {
  double at = 0;
  std::string label;
  bool vertical = true;
};

/// One chart as data; whoever shows it also shows chart_table().
struct ReportChart {
  std::string id;     ///< unique in its page, fit for an attribute
  std::string title;  ///< also the caption of its table
  ChartKind kind = ChartKind::lines;
  ChartAxis x = {}, y = {};
  std::string description = {};  ///< words for a reader who cannot see it
  std::string note = {};         ///< origin of the values, down-sampling included
  std::optional<ChartAxis> right = {};
  std::vector<std::string> categories = {};
  std::vector<double> edges = {};    ///< for a grid: one more than its columns
  std::vector<double> colours = {};  ///< for a grid: the value of the palest colour, and what the
                                     ///< deepest one stands for at least; empty: as the values go
  GridTone tone = GridTone::bad;
  std::vector<ChartSeries> series = {};
  std::vector<ChartSpan> spans = {};
  std::vector<ChartBand> bands = {};
  std::vector<ChartRule> rules = {};
};

/// Every value of the chart as a table, captioned with the chart's title.
Table chart_table(const ReportChart& chart);

/// Six significant digits; empty where there is none or it is not finite.
std::string number_cell(std::optional<double> value);

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

/// Points that a line over time keeps at most.
inline constexpr std::size_t most_chart_points = 1000;

/// Indices of at most `count` points that keep the shape of the line:
/// largest-triangle-three-buckets (Steinarsson, "Downsampling Time Series for Visual
/// Representation", 2013, §4.2). First and last are kept; ascending; `count` is at least 3. Values
/// must be finite. Linear in the points.
std::vector<std::size_t> largest_triangles(std::span<const double> x, std::span<const double> y,
                                           std::size_t count = most_chart_points);

/// The points as a line of at most most_chart_points; adds to `note` how many were left out and by
/// which method.
ChartSeries thinned_line(const std::string& name, const std::vector<double>& x,
                         const std::vector<double>& y, std::string& note);

/// Files of this folder that a report carries, as they were when the program was built
/// (EmbedText.cmake). None of them may hold "</script" or "</style".
std::string report_style();
std::string report_charts_script();  ///< goes before report_script()
std::string report_script();
std::string chart_library();
std::string chart_library_license();

}  // namespace heteroperf
