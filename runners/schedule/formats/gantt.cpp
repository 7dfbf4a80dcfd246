// The text chart. Each row is painted twice: first every column gets the symbol of the operation
// that takes most of its time, then labels are written over those columns of which their operation
// takes half or more, so that a label never hides another operation.

#include "runners/schedule/formats/gantt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runners/schedule/formats/drawing.hpp"

namespace heteroperf {
namespace {

constexpr int plain = -1;  // no colour

/// A line of characters with background colours, cut at a width when printed.
class Line {
 public:
  void add(std::string_view text, int colour = plain) {
    while (!text.empty()) {
      std::size_t length = 1;
      while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xc0u) == 0x80u) {
        ++length;
      }
      glyphs_.push_back({std::string(text.substr(0, length)), colour});
      text.remove_prefix(length);
    }
  }

  void add_times(int times, std::string_view glyph) {
    for (int i = 0; i < times; ++i) add(glyph);
  }

  int size() const { return static_cast<int>(glyphs_.size()); }

  /// Writes over what is there.
  void put(int column, std::string_view text, int colour = plain) {
    Line line;
    line.add(text, colour);
    while (size() < column + line.size()) add(" ");
    std::copy(line.glyphs_.begin(), line.glyphs_.end(), glyphs_.begin() + column);
  }

  void print(std::string& out, int width, bool colours) const {
    int current = plain;
    for (int i = 0; i < std::min(width, size()); ++i) {
      const Glyph& glyph = glyphs_[i];
      if (colours && glyph.colour != current) {
        out +=
            glyph.colour == plain ? "\x1b[0m" : fmt::format("\x1b[48;5;{};38;5;16m", glyph.colour);
        current = glyph.colour;
      }
      out += glyph.text;
    }
    if (current != plain) out += "\x1b[0m";
    out += '\n';
  }

 private:
  struct Glyph {
    std::string text;
    int colour;
  };
  std::vector<Glyph> glyphs_;
};

/// The characters that a style draws with.
struct GanttGlyphs {
  const char *bar, *rule, *corner, *tick, *fill, *idle, *dots;
};

GanttGlyphs glyphs_of(const GanttStyle& style) {
  GanttGlyphs glyphs = style.unicode ? GanttGlyphs{"│", "─", "└", "┴", "─", "·", "…"}
                                     : GanttGlyphs{"|", "-", "+", "+", "-", ".", "..."};
  if (style.colour) glyphs.fill = glyphs.idle = " ";
  return glyphs;
}

class GanttChart {
 public:
  GanttChart(const Schedule& schedule, const Timeline& timeline, const GanttStyle& style)
      : schedule_(schedule),
        timeline_(timeline),
        style_(style),
        glyphs_(glyphs_of(style)),
        lanes_(lanes(schedule.graph)),
        end_(drawn_end(timeline)),
        margin_(static_cast<int>(std::to_string(std::max(0, ranks() - 1)).size()) + 1),
        columns_(std::max(1, style.width - margin_ - 2)) {}

  std::string draw() {
    const int shown = std::min(ranks(), std::max(2, style_.most_rows));
    const int above = (shown + 1) / 2, below = ranks() - shown / 2;
    for (int rank = 0; rank < above; ++rank) add_rank(rank);
    if (below > above) add_gap(below - above);
    for (int rank = below; rank < ranks(); ++rank) add_rank(rank);
    add_axis();
    add_legend();
    return std::move(text_);
  }

 private:
  /// The part of a column that operations of one kind and lane take.
  struct Share {
    DrawnKind kind;
    int lane;
    double columns;
  };

  int ranks() const { return static_cast<int>(schedule_.programs.size()); }
  double column_of(double time) const { return end_ > 0 ? time / end_ * columns_ : 0; }
  void finish(const Line& line) { line.print(text_, style_.width, style_.colour); }

  /// Draws the row of a rank.
  void add_rank(int rank) {
    const std::vector<DrawnSpan> spans = drawn_spans(schedule_, timeline_, lanes_, rank);
    Line line;
    line.add(fmt::format("{:>{}} {}", rank, margin_ - 1, glyphs_.bar));
    paint_shares(spans, line);
    for (const DrawnSpan& span : spans) {
      kinds_seen_[static_cast<std::size_t>(span.kind)] = true;
      paint_label(rank, span, line);
    }
    line.add(glyphs_.bar);
    finish(line);
  }

  /// Finds for each column the operations in it and how much of it each takes.
  void paint_shares(const std::vector<DrawnSpan>& spans, Line& line) const {
    std::vector<std::vector<Share>> shares(columns_);
    for (const DrawnSpan& span : spans) {
      const double start = column_of(span.span.start), end = column_of(span.span.end);
      const int lane = style_.colour ? span.lane : 0;  // what looks the same counts as one
      for (int c = std::clamp(static_cast<int>(start), 0, columns_ - 1); c < end && c < columns_;
           ++c) {
        const double covered = std::min<double>(end, c + 1) - std::max<double>(start, c);
        if (covered > 0) shares[c].push_back({span.kind, lane, covered});
      }
    }
    for (std::vector<Share>& column : shares) paint_column(column, line);
  }

  /// Draws a column as what takes most of it, or as idle.
  void paint_column(std::vector<Share>& shares, Line& line) const {
    std::stable_sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) {
      return std::pair(a.kind, a.lane) < std::pair(b.kind, b.lane);
    });
    double idle = 1;
    Share most{DrawnKind::forward, 0, 0};
    for (std::size_t i = 0; i < shares.size();) {
      Share sum = shares[i];
      while (++i < shares.size() && shares[i].kind == sum.kind && shares[i].lane == sum.lane) {
        sum.columns += shares[i].columns;
      }
      idle -= sum.columns;
      if (sum.columns > most.columns) most = sum;
    }
    if (most.columns < idle - 1e-9) return line.add(glyphs_.idle);
    line.add(std::string(1, kind_text(most.kind).symbol), palette_index(most.kind, most.lane));
  }

  /// Writes a label over the columns of which the operation takes half or more.
  void paint_label(int rank, const DrawnSpan& span, Line& line) const {
    const int first = static_cast<int>(std::lround(column_of(span.span.start)));
    const int width = static_cast<int>(std::lround(column_of(span.span.end))) - first;
    const std::string label = kind_text(span.kind).letters +
                              number_text(schedule_.graph, schedule_.programs[rank][span.index]);
    if (static_cast<int>(label.size()) > width) return;
    const int colour = palette_index(span.kind, span.lane), left = margin_ + 1 + first;
    line.put(left, label, colour);
    for (int i = static_cast<int>(label.size()); i < width; ++i) {
      line.put(left + i, glyphs_.fill, colour);
    }
  }

  /// Says how many ranks are left out.
  void add_gap(int count) {
    Line line;
    line.add(fmt::format("{:>{}} {} more ranks", glyphs_.dots, margin_ - 1, count));
    finish(line);
  }

  /// Draws the axis with its ticks and their labels, as far as these do not collide.
  void add_axis() {
    constexpr int columns_per_tick = 12;
    Line rule, labels;
    rule.add_times(margin_, " ");
    rule.add(glyphs_.corner);
    rule.add_times(columns_, glyphs_.rule);
    for (const TimeTick& tick : time_ticks(end_, std::max(2, columns_ / columns_per_tick))) {
      const int column = static_cast<int>(column_of(tick.time));
      if (column > 0) rule.put(margin_ + 1 + std::min(column, columns_ - 1), glyphs_.tick);
      if (labels.size() < margin_ + 1 + column) labels.put(margin_ + 1 + column, tick.label);
    }
    finish(rule);
    finish(labels);
  }

  /// Explains the symbols that were drawn.
  void add_legend() {
    Line line;
    line.add_times(margin_ + 1, " ");
    const int first = line.size();
    for (int i = 0; i < drawn_kind_count; ++i) {
      const DrawnKindText& text = kind_text(static_cast<DrawnKind>(i));
      if (!kinds_seen_[i]) continue;
      if (line.size() > first) line.add("  ");
      line.add(fmt::format("{} {}", text.symbol, text.legend));
    }
    finish(line);
    if (style_.colour && lanes_.names.size() > 1) add_lanes();
  }

  void add_lanes() {
    constexpr int most_lanes = 12;
    Line line;
    line.add_times(margin_ + 1, " ");
    for (int lane = 0; lane < std::min(most_lanes, static_cast<int>(lanes_.names.size())); ++lane) {
      const std::string& name = lanes_.names[lane];
      line.add(fmt::format(" {} ", name.empty() ? "main" : name),
               palette_index(DrawnKind::forward, lane));
      line.add(" ");
    }
    finish(line);
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  const GanttStyle& style_;
  GanttGlyphs glyphs_;
  Lanes lanes_;
  double end_;
  int margin_, columns_;  // columns before the frame, and within it
  std::array<bool, drawn_kind_count> kinds_seen_{};
  std::string text_;
};

}  // namespace

std::string gantt_text(const Schedule& schedule, const Timeline& timeline,
                       const GanttStyle& style) {
  return GanttChart(schedule, timeline, style).draw();
}

}  // namespace heteroperf
