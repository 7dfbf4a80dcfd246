// The SVG is written front to back, except for its head: height, colours and legend depend on what
// the rows hold, so the body is written first. Coordinates are pixels.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/schedule/formats/drawing.hpp"
#include "runners/schedule/formats/gantt.hpp"

namespace heteroperf {
namespace {

constexpr double margin = 12, row_height = 22, memory_height = 26, gap = 4, line_height = 18;
constexpr double label_width = 64, pixels_per_operation = 20, narrowest = 900, widest = 24000;
constexpr double narrowest_label = 13;

/// A foreign text as XML allows it.
std::string escaped(std::string_view text) {
  constexpr std::pair<char, const char*> entities[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
  std::string result;
  for (const char c : drawable(text)) {
    const auto* const entity =
        std::find_if(std::begin(entities), std::end(entities),
                     [&](const auto& candidate) { return candidate.first == c; });
    entity == std::end(entities) ? result += c : result += entity->second;
  }
  return result;
}

/// Writes a length in hundredths of a pixel, without trailing zeros.
std::string pixels(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string hex_colour(int index) {
  const auto rgb = palette_rgb(index);
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

class SvgChart {
 public:
  SvgChart(const Schedule& schedule, const Timeline& timeline, const SvgStyle& style)
      : schedule_(schedule),
        timeline_(timeline),
        style_(style),
        lanes_(lanes(schedule.graph)),
        end_(drawn_end(timeline)),
        width_(chart_width()) {
    if (style.memory) peaks_ = memory_peaks(schedule).memory;
  }

  std::string draw() {
    std::string body;
    for (int rank = 0; rank < ranks(); ++rank) add_rank(rank, body);
    add_axis(body);
    add_legend(body);
    return head() + body + "</svg>\n";
  }

 private:
  int ranks() const { return static_cast<int>(schedule_.programs.size()); }
  double top() const { return margin + line_height; }
  double pitch() const { return row_height + gap + (style_.memory ? memory_height : 0); }
  double x(double time) const {
    return margin + label_width + (end_ > 0 ? time / end_ * width_ : 0);
  }

  double chart_width() const {
    std::size_t longest = 0;
    for (const auto& program : schedule_.programs) longest = std::max(longest, program.size());
    return std::clamp(pixels_per_operation * static_cast<double>(longest), narrowest, widest);
  }

  /// The head needs the height and the colours, which are known once the body is there.
  std::string head() const {
    const std::string width = pixels(2 * margin + label_width + width_);
    const std::string height = pixels(top() + pitch() * ranks() + 3 * line_height + margin +
                                      line_height * static_cast<double>(legend_rows_));
    std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    text += fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
        width, height);
    text += "<style>text{pointer-events:none}";
    for (const int colour : colours_) {
      text += fmt::format(".c{}{{fill:{}}}", colour, hex_colour(colour));
    }
    text += "</style>\n";
    return text + fmt::format(
                      "<text x=\"{}\" y=\"{}\" font-size=\"13\">{}: {} ranks, {} "
                      "micro-batches, makespan {:.6g}</text>\n",
                      pixels(margin), pixels(margin + 8), escaped(schedule_.name), ranks(),
                      schedule_.graph.micro_batches, end_);
  }

  /// Draws the row of a rank.
  void add_rank(int rank, std::string& body) {
    const double y = top() + pitch() * rank;
    fmt::format_to(std::back_inserter(body),
                   "<g><text x=\"{}\" y=\"{}\">rank {}</text>\n"
                   "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#f2f2f2\"/>\n",
                   pixels(margin), pixels(y + row_height * 0.7), rank, pixels(x(0)), pixels(y),
                   pixels(width_), pixels(row_height));
    for (DrawnSpan span : drawn_spans(schedule_, timeline_, lanes_, rank)) {
      span.span = timeline_.spans[rank][span.index];
      add_span(rank, span, y, body);
    }
    if (style_.memory) add_memory(rank, y + row_height, body);
    body += "</g>\n";
  }

  /// Draws an instruction; each of a fused pair takes half of the height.
  void add_span(int rank, const DrawnSpan& span, double y, std::string& body) {
    const Instruction& instruction = schedule_.programs[rank][span.index];
    const double left = x(span.span.start), width = x(span.span.end) - left;
    const double height = span.half < 0 ? row_height : row_height / 2;
    const double y0 = y + (span.half == 1 ? row_height / 2 : 0);
    const int colour = palette_index(span.kind, span.lane);
    colours_.insert(colour);
    kinds_.insert(span.kind);
    fmt::format_to(std::back_inserter(body),
                   "<rect class=\"c{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}: "
                   "{:.9g} to {:.9g}</title></rect>\n",
                   colour, pixels(left), pixels(y0), pixels(std::max(width - 0.4, width * 0.8)),
                   pixels(height), title(instruction), span.span.start, span.span.end);
    const std::string label =
        kind_text(span.kind).letters + number_text(schedule_.graph, instruction);
    if (width < std::max(narrowest_label, 6.5 * static_cast<double>(label.size()))) return;
    fmt::format_to(std::back_inserter(body),
                   "<text x=\"{}\" y=\"{}\" font-size=\"{}\" text-anchor=\"middle\">{}</text>\n",
                   pixels(left + width / 2), pixels(y0 + height / 2 + (span.half < 0 ? 4 : 3)),
                   span.half < 0 ? 11 : 8, label);
  }

  /// The text that appears over an instruction.
  std::string title(const Instruction& instruction) const {
    std::string text = escaped(to_text(instruction));
    if (instruction.segment < 0) return text;
    const Segment& segment = schedule_.graph.segments[instruction.segment];
    if (!segment.branch.empty()) text += ", branch " + escaped(segment.branch);
    if (segment.name != std::to_string(instruction.segment.value())) {
      text += ", segment " + escaped(segment.name);
    }
    return text;
  }

  /// Draws the activations held, as memory_change() counts them: they are taken when an operation
  /// starts and given back when it ends.
  void add_memory(int rank, double y, std::string& body) const {
    const std::vector<Instruction>& program = schedule_.programs[rank];
    const double full = std::max(1e-12, peaks_[rank]);
    double held = 0;
    std::string points = fmt::format("{},{}", pixels(x(0)), pixels(y + memory_height));
    const auto step_to = [&](double time, double change) {
      const auto height = [&] { return pixels(y + memory_height - held / full * 20); };
      fmt::format_to(std::back_inserter(points), " {0},{1}", pixels(x(time)), height());
      held += change;
      fmt::format_to(std::back_inserter(points), " {0},{1}", pixels(x(time)), height());
    };
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (!is_gradient(program[i].op) && program[i].op != Op::forward) continue;
      const TimeSpan span = timeline_.spans[rank][i];
      const double change =
          memory_change(schedule_.graph.segments[program[i].segment], program[i].op);
      step_to(change > 0 ? span.start : span.end, change / schedule_.graph.parts);
    }
    step_to(end_, 0);
    fmt::format_to(std::back_inserter(body),
                   "<polygon points=\"{} {},{}\" fill=\"#c8c8c8\"><title>rank {}: at most {:.6g} "
                   "micro-batches of activations</title></polygon>\n",
                   points, pixels(x(end_)), pixels(y + memory_height), rank, full);
  }

  /// Draws the axis below the last rank.
  void add_axis(std::string& body) const {
    const double y = top() + pitch() * ranks();
    fmt::format_to(std::back_inserter(body),
                   "<path d=\"M{} {}H{}\" stroke=\"#000000\" fill=\"none\"/>\n", pixels(x(0)),
                   pixels(y), pixels(x(0) + width_));
    for (const TimeTick& tick : time_ticks(end_, static_cast<int>(width_ / 90))) {
      fmt::format_to(std::back_inserter(body),
                     "<path d=\"M{0} {1}v5\" stroke=\"#000000\"/><text x=\"{0}\" y=\"{2}\" "
                     "text-anchor=\"middle\">{3}</text>\n",
                     pixels(x(tick.time)), pixels(y), pixels(y + 17), tick.label);
    }
  }

  void add_legend(std::string& body) {
    double y = top() + pitch() * ranks() + 2 * line_height;
    for (int lane = 0; lane < std::min(8, std::max(1, static_cast<int>(lanes_.names.size())));
         ++lane) {
      double left = x(0);
      for (const DrawnKind kind : kinds_) {
        if (lane > 0 && kind >= DrawnKind::group) continue;
        add_key(kind, lane, left, y, body);
      }
      y += line_height;
      ++legend_rows_;
    }
  }

  /// Draws one entry of the legend.
  void add_key(DrawnKind kind, int lane, double& left, double y, std::string& body) {
    const int colour = palette_index(kind, lane);
    colours_.insert(colour);
    std::string text = kind_text(kind).legend;
    const bool named = kind < DrawnKind::group && !lanes_.names.empty();
    const std::string& name = named ? lanes_.names[lane] : "";
    if (!name.empty()) text = name + ": " + text;
    fmt::format_to(std::back_inserter(body),
                   "<rect class=\"c{}\" x=\"{}\" y=\"{}\" width=\"12\" height=\"12\"/><text "
                   "x=\"{}\" y=\"{}\">{}</text>\n",
                   colour, pixels(left), pixels(y), pixels(left + 16), pixels(y + 10),
                   escaped(text));
    left += 36 + 6.5 * static_cast<double>(text.size());
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  const SvgStyle& style_;
  Lanes lanes_;
  double end_, width_;
  std::vector<double> peaks_;  // [rank]
  std::set<int> colours_;
  std::set<DrawnKind> kinds_;
  int legend_rows_ = 0;
};

}  // namespace

std::string gantt_svg(const Schedule& schedule, const Timeline& timeline, const SvgStyle& style) {
  const std::size_t count = instruction_count(schedule);
  if (count > most_drawn) {
    throw UserError(fmt::format("a drawing of {} instructions", count),
                    fmt::format("an SVG of more than {} opens nowhere", most_drawn),
                    "Use the format trace, or fewer micro-batches.");
  }
  return SvgChart(schedule, timeline, style).draw();
}

}  // namespace heteroperf
