// Colours are taken from the 256 colours of xterm, so that the text chart and the SVG agree: a hue
// for each lane, a shade of it for each kind of computation.

#include "runners/schedule/formats/drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr DrawnKindText kind_texts[drawn_kind_count] = {
    {"F", 'F', "forward"},
    {"B", 'B', "input gradient"},
    {"W", 'W', "weight gradient"},
    {"BW", '#', "backward (B and W)"},
    {"R", 'R', "recompute"},
    {"*", '*', "reduction, step or interaction"},
    {"~", '~', "waits for a message"},
};

/// The number of bytes of the UTF-8 sequence that `text` begins with; 0 where there is none, or it
/// is overlong or a surrogate.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0);
    return !wrong && follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first < 0xf5) {
    const bool wrong = (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
    return !wrong && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

/// The kind that an operation is drawn as; computations are kinds in the same order.
DrawnKind kind_of(Op op) {
  if (is_compute(op))
    return static_cast<DrawnKind>(static_cast<int>(op) - static_cast<int>(Op::forward));
  if (op == Op::load || op == Op::loss) return DrawnKind::forward;
  return op >= Op::interact && op <= Op::opt_step ? DrawnKind::group : DrawnKind::wait;
}

/// The time at which the first of a fused pair hands over to the second in the drawing.
double pair_middle(const PipelineGraph& graph, const Instruction* pair, TimeSpan span) {
  const double first = compute_time(graph, pair[0]), both = first + compute_time(graph, pair[1]);
  return span.start + (span.end - span.start) * (both > 0 ? first / both : 0.5);
}

// The colours of each lane go from light to dark: F, B, W, BW. The rest take the lane's F.
constexpr int lane_palette[][4] = {{153, 75, 32, 69},    {223, 215, 172, 208}, {157, 77, 34, 71},
                                   {219, 176, 133, 170}, {229, 227, 184, 220}, {159, 80, 37, 73},
                                   {217, 210, 167, 203}, {252, 248, 244, 246}};
constexpr int no_lane_palette = 250;

/// Writes a time with as many decimals as the step between ticks needs.
std::string tick_label(double time, double step) {
  if (time != 0 && (time >= 1e9 || step < 1e-6)) return fmt::format("{:.6g}", time);
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return fmt::format("{:.{}f}", time, decimals);
}

}  // namespace

const DrawnKindText& kind_text(DrawnKind kind) { return kind_texts[static_cast<int>(kind)]; }

Lanes lanes(const PipelineGraph& graph) {
  std::map<std::pair<std::string, int>, int> held;     // (branch, rank) → segments
  std::map<std::pair<std::string, int>, int> numbers;  // (branch, chunk) → lane
  std::map<std::string, int> chunks;
  std::vector<std::pair<std::string, int>> keys;
  Lanes result;
  for (const Segment& segment : graph.segments) {
    const int chunk = held[{segment.branch, segment.rank}]++;
    chunks[segment.branch] = std::max(chunks[segment.branch], chunk + 1);
    const auto [entry, added] =
        numbers.try_emplace({segment.branch, chunk}, static_cast<int>(keys.size()));
    if (added) keys.emplace_back(segment.branch, chunk);
    result.of_segment.push_back(entry->second);
  }
  for (const auto& [branch, chunk] : keys) {
    std::string name = drawable(branch);
    if (chunks[branch] > 1) name += fmt::format("{}chunk {}", name.empty() ? "" : ", ", chunk);
    result.names.push_back(std::move(name));
  }
  return result;
}

std::vector<DrawnSpan> drawn_spans(const Schedule& schedule, const Timeline& timeline,
                                   const Lanes& lanes, int rank) {
  const std::vector<Instruction>& program = schedule.programs[rank];
  HETEROPERF_EXPECT(timeline.spans.size() == schedule.programs.size());
  HETEROPERF_EXPECT(timeline.spans[rank].size() == program.size());
  std::vector<DrawnSpan> drawn;
  for (std::size_t i = 0; i < program.size(); ++i) {
    DrawnSpan span{timeline.spans[rank][i], kind_of(program[i].op), -1, static_cast<int>(i), -1};
    if (program[i].segment >= 0) span.lane = lanes.of_segment[program[i].segment];
    const bool first = program[i].fused_with_next && i + 1 < program.size();
    const bool second = i > 0 && program[i - 1].fused_with_next;
    if (first != second) {
      const double middle =
          pair_middle(schedule.graph, &program[first ? i : i - 1], timeline.spans[rank][i]);
      span.half = first ? 0 : 1;
      (first ? span.span.end : span.span.start) = middle;
    }
    if (span.span.end > span.span.start) drawn.push_back(span);
  }
  return drawn;
}

std::string drawable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    // The second control block, U+0080 to U+009F, is C2 80 to C2 9F.
    const bool control =
        first < 0x20 || first == 0x7f ||
        (length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (length == 0 || control) {
      result += '?';
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

double drawn_end(const Timeline& timeline) {
  double end = 0;
  for (const std::vector<TimeSpan>& spans : timeline.spans) {
    for (const TimeSpan& span : spans) end = std::max(end, span.end);
  }
  return end;
}

int palette_index(DrawnKind kind, int lane) {
  if (lane < 0 || kind >= DrawnKind::group) return no_lane_palette;
  const auto& shades = lane_palette[static_cast<std::size_t>(lane) % std::size(lane_palette)];
  return shades[kind == DrawnKind::recompute ? 0 : static_cast<int>(kind)];
}

std::array<int, 3> palette_rgb(int index) {
  if (index >= 232) return {8 + 10 * (index - 232), 8 + 10 * (index - 232), 8 + 10 * (index - 232)};
  constexpr int levels[] = {0, 95, 135, 175, 215, 255};
  const int cube = index - 16;
  return {levels[cube / 36], levels[cube / 6 % 6], levels[cube % 6]};
}

std::string number_text(const PipelineGraph& graph, const Instruction& instruction) {
  if (instruction.micro_batch < 0) return {};
  std::string text = std::to_string(instruction.micro_batch.value());
  if (graph.parts > 1) text += "/" + std::to_string(instruction.part);
  return text;
}

std::vector<TimeTick> time_ticks(double end, int most) {
  if (!(end > 0)) return {{0, "0"}};
  const double raw = end / std::max(1, most - 1);
  double step = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (step * factor >= raw * (1 - 1e-9)) {
      step *= factor;
      break;
    }
  }
  std::vector<TimeTick> ticks;
  for (int i = 0; i * step <= end * (1 + 1e-9) && i < most; ++i) {
    ticks.push_back({std::min(i * step, end), tick_label(i * step, step)});
  }
  return ticks;
}

}  // namespace heteroperf
