#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/schedule/formats/csv.hpp"
#include "runners/schedule/formats/drawing.hpp"
#include "runners/schedule/formats/gantt.hpp"
#include "runners/schedule/formats/trace_json.hpp"
#include "runners/schedule/ir/placement.hpp"

namespace heteroperf {
namespace {

using nlohmann::json;

/// A schedule with the times of its instructions, put together by hand.
struct Sample {
  Schedule schedule;
  Timeline timeline;

  void add(int rank, const Instruction& instruction, double start, double end) {
    schedule.programs[rank].push_back(instruction);
    timeline.spans[rank].push_back({start, end});
    timeline.causes[rank].emplace_back();
  }
};

Sample empty_sample(PipelineGraph graph) {
  Sample sample;
  sample.schedule.name = "a <b> & \"c\"";
  sample.schedule.graph = std::move(graph);
  const auto ranks = static_cast<std::size_t>(sample.schedule.graph.ranks);
  sample.schedule.programs.resize(ranks);
  sample.timeline.spans.resize(ranks);
  sample.timeline.causes.resize(ranks);
  return sample;
}

/// 1F1B of two stages and two micro-batches, F 4, BW 8.
Sample two_by_two() {
  Sample s =
      empty_sample(chain_graph(2, 2, 1, ChainPlacement::looped, uniform_costs(2, 4, 4, 4, 0)));
  s.add(0, compute(Op::forward, 0, 0), 0, 4);
  s.add(0, compute(Op::forward, 0, 1), 4, 8);
  s.add(0, compute(Op::backward, 0, 0), 16, 24);
  s.add(0, compute(Op::backward, 0, 1), 28, 36);
  s.add(1, compute(Op::forward, 1, 0), 4, 8);
  s.add(1, compute(Op::backward, 1, 0), 8, 16);
  s.add(1, compute(Op::forward, 1, 1), 16, 20);
  s.add(1, compute(Op::backward, 1, 1), 20, 28);
  return s;
}

/// Two chunks on each rank, a fused pair, messages and a step that take time.
Sample with_everything() {
  Sample s =
      empty_sample(chain_graph(2, 2, 2, ChainPlacement::zig_zag, uniform_costs(2, 2, 2, 2, 0)));
  s.schedule.level = ScheduleLevel::lowered;
  s.schedule.graph.segments[3].branch = "a\x1b[31m<&";
  s.add(0, compute(Op::forward, 0, 0), 0, 1);
  s.add(0, compute(Op::send_act, 0, 0), 1, 2);
  s.add(0, compute(Op::free, 0, 0), 2, 2);
  Instruction first = compute(Op::forward, 0, 1);
  first.fused_with_next = true;
  s.add(0, first, 4, 7);
  s.add(0, compute(Op::backward, 3, 0), 4, 7);
  s.add(0, compute(Op::input_gradient, 3, 1), 7, 8);
  s.add(0, compute(Op::weight_gradient, 3, 1), 8, 9);
  s.add(0, compute(Op::recompute, 0, 0), 9, 10);
  s.add(0, compute(Op::opt_step, -1, -1), 10, 12);
  s.add(1, compute(Op::forward, 1, 0), 2, 3);
  s.add(1, compute(Op::forward, 2, 0), 3, 4);
  return s;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Columns a terminal shows: escape sequences take none, a UTF-8 sequence one.
int visible_width(const std::string& line) {
  int width = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (i < line.size() && line[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(line[i]) & 0xc0u) != 0x80u) {
      ++width;
    }
  }
  return width;
}

TEST(Gantt, DrawsATinySchedule) {
  const Sample s = two_by_two();
  // 36 columns for 36 units of time.
  EXPECT_EQ(gantt_text(s.schedule, s.timeline, {.width = 40}),
            "0 |F0--F1--........BW0-----....BW1-----|\n"
            "1 |....F0--BW0-----F1--BW1-----........|\n"
            "  +--------------------+---------------\n"
            "   0                   20\n"
            "   F forward  # backward (B and W)\n");
}

TEST(Gantt, DrawsLettersWhereNumbersDoNotFit) {
  const Sample s = two_by_two();
  EXPECT_EQ(gantt_text(s.schedule, s.timeline, {.width = 13}),  // 4 units a column
            "0 |FF..##.##|\n"
            "1 |.F##F##..|\n"
            "  +---------\n"
            "   0\n"
            "   F forward \n");
}

TEST(Gantt, DrawsUnicode) {
  const Sample s = two_by_two();
  const auto lines = lines_of(gantt_text(s.schedule, s.timeline, {.width = 40, .unicode = true}));
  EXPECT_EQ(lines[0], "0 │F0──F1──········BW0─────····BW1─────│");
  EXPECT_EQ(lines[2], "  └────────────────────┴───────────────");
}

TEST(Gantt, ColoursTellChunksApart) {
  Sample s = with_everything();
  const std::string text = gantt_text(s.schedule, s.timeline, {.width = 60, .colour = true});
  const Lanes found = lanes(s.schedule.graph);
  ASSERT_EQ(found.names.size(), 3u);
  EXPECT_NE(text.find(fmt::format("\x1b[48;5;{};38;5;16mF0",
                                  palette_index(DrawnKind::forward, found.of_segment[0]))),
            std::string::npos);
  EXPECT_NE(text.find(fmt::format("\x1b[48;5;{};38;5;16mB1",
                                  palette_index(DrawnKind::input_gradient, found.of_segment[3]))),
            std::string::npos);
  EXPECT_NE(palette_index(DrawnKind::forward, 0), palette_index(DrawnKind::forward, 1));
  EXPECT_EQ(text.find("\x1b[31m"), std::string::npos)
      << "a branch's name must not drive the terminal";
  for (const std::string& line : lines_of(text)) {
    EXPECT_EQ(line.find('\x1b') == std::string::npos, line.find("\x1b[0m") == std::string::npos);
  }
  EXPECT_EQ(gantt_text(s.schedule, s.timeline, {.width = 60}).find('\x1b'), std::string::npos);
}

TEST(Gantt, ShowsPairsWaitsAndSteps) {
  const Sample s = with_everything();
  // 60 columns for 12 units. The pair's F takes a third of its time: 1 of 3 (F 1, BW 2).
  const auto lines = lines_of(gantt_text(s.schedule, s.timeline, {.width = 64}));
  EXPECT_EQ(lines[0], "0 |F0---~0---..........F1---BW0-------B1---W1---R0---*---------|");
  EXPECT_EQ(lines[1], "1 |..........F0---F0---........................................|");
}

TEST(Gantt, AColumnShowsWhatTakesMostOfIt) {
  Sample s =
      empty_sample(chain_graph(1, 8, 1, ChainPlacement::looped, uniform_costs(1, 1, 1, 1, 0)));
  // Two columns of 10: F 2+2, B 5, idle 1; then idle 7, W 3.
  s.add(0, compute(Op::forward, 0, 0), 0, 2);
  s.add(0, compute(Op::input_gradient, 0, 0), 2, 7);
  s.add(0, compute(Op::forward, 0, 1), 7, 9);
  s.add(0, compute(Op::weight_gradient, 0, 0), 17, 20);
  EXPECT_EQ(lines_of(gantt_text(s.schedule, s.timeline, {.width = 6}))[0], "0 |B.|");
}

TEST(Gantt, IsNeverWider) {
  for (const Sample& s : {two_by_two(), with_everything()}) {
    for (int width = 0; width < 130; ++width) {
      for (const bool fancy : {false, true}) {
        const GanttStyle style{.width = width, .colour = fancy, .unicode = fancy};
        for (const std::string& line : lines_of(gantt_text(s.schedule, s.timeline, style))) {
          EXPECT_LE(visible_width(line), width);
        }
      }
    }
  }
}

TEST(Gantt, LeavesRanksOutInTheMiddle) {
  Sample s =
      empty_sample(chain_graph(100, 1, 1, ChainPlacement::looped, uniform_costs(100, 1, 1, 1, 0)));
  for (int rank = 0; rank < 100; ++rank) {
    s.add(rank, compute(Op::forward, SegmentId(rank), 0), rank, rank + 1);
  }
  const auto lines = lines_of(gantt_text(s.schedule, s.timeline, {.width = 80, .most_rows = 10}));
  ASSERT_EQ(lines.size(), 14u);
  EXPECT_TRUE(lines[4].starts_with(" 4 |")) << lines[4];
  EXPECT_EQ(lines[5], "... 90 more ranks");
  EXPECT_TRUE(lines[6].starts_with("95 |")) << lines[6];
}

TEST(Gantt, DrawsNothing) {
  const Sample none =
      empty_sample(chain_graph(1, 1, 1, ChainPlacement::looped, uniform_costs(1, 0, 0, 0, 0)));
  EXPECT_EQ(lines_of(gantt_text(none.schedule, none.timeline, {.width = 9}))[0], "0 |.....|");
  Sample instant = none;
  instant.add(0, compute(Op::forward, 0, 0), 0, 0);
  EXPECT_EQ(lines_of(gantt_text(instant.schedule, instant.timeline, {.width = 9}))[0], "0 |.....|");
}

TEST(TimeTicks, AreRound) {
  const auto labels = [](double end, int most) {
    std::string text;
    for (const TimeTick& tick : time_ticks(end, most)) text += tick.label + " ";
    return text;
  };
  EXPECT_EQ(labels(36, 3), "0 20 ");
  EXPECT_EQ(labels(100, 6), "0 20 40 60 80 100 ");
  EXPECT_EQ(labels(0.003, 4), "0.000 0.001 0.002 0.003 ");
  EXPECT_EQ(labels(1e12, 3), "0 5e+11 1e+12 ");
  EXPECT_EQ(labels(0, 5), "0 ");
}

/// Whether tags nest, attributes are quoted, and nothing but the five entities is escaped. The
/// problem found, or nothing.
std::string xml_problem(const std::string& text) {
  std::vector<std::string> open;
  std::size_t at = 0;
  bool rooted = false;
  while (at < text.size()) {
    if (text[at] == '&') {
      const std::string_view rest = std::string_view(text).substr(at);
      bool entity = false;
      for (const char* name : {"&amp;", "&lt;", "&gt;", "&quot;"}) entity |= rest.starts_with(name);
      if (!entity) return "a lone & at " + std::to_string(at);
    }
    if (text[at] != '<') {
      const bool blank = text[at] == '\n' || text[at] == ' ';
      if (open.empty() && !blank) return "text outside the root";
      if (text[at] == '>' || (static_cast<unsigned char>(text[at]) < 0x20 && !blank)) {
        return "a stray character at " + std::to_string(at);
      }
      ++at;
      continue;
    }
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) return "an open tag";
    std::string tag = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag.find('<') != std::string::npos) return "< within a tag";
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return "an open attribute in " + tag;
    if (tag.starts_with("?")) continue;
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != tag.substr(1)) return "a wrong end tag " + tag;
      open.pop_back();
      continue;
    }
    if (open.empty() && rooted) return "two roots";
    rooted = true;
    if (!tag.ends_with("/")) open.push_back(tag.substr(0, tag.find(' ')));
  }
  return open.empty() ? "" : "the tag " + open.back() + " is open";
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(XmlCheck, FindsProblems) {
  EXPECT_EQ(xml_problem("<a b=\"1\"><c/>x &amp; y</a>\n"), "");
  for (const char* bad : {"<a>", "<a></b>", "<a b=\"1></a>", "<a>&</a>", "<a/><b/>", "x<a/>"}) {
    EXPECT_NE(xml_problem(bad), "") << bad;
  }
}

TEST(Svg, IsWellFormed) {
  for (const Sample& s : {two_by_two(), with_everything()}) {
    for (const bool memory : {false, true}) {
      const std::string text = gantt_svg(s.schedule, s.timeline, {.memory = memory});
      EXPECT_EQ(xml_problem(text), "") << text;
      EXPECT_NE(text.find("a &lt;b&gt; &amp; &quot;c&quot;"), std::string::npos);
      EXPECT_EQ(count_of(text, "<polygon"), memory ? 2 : 0);
    }
  }
}

TEST(Svg, DrawsARectanglePerInstructionThatTakesTime) {
  const Sample s = two_by_two();
  const std::string text = gantt_svg(s.schedule, s.timeline);
  EXPECT_EQ(count_of(text, "</title></rect>"), 8);
  EXPECT_NE(text.find("<title>F 0.0: 0 to 4</title>"), std::string::npos);
  EXPECT_NE(text.find("<title>BW 1.1: 20 to 28</title>"), std::string::npos);
  EXPECT_NE(text.find(">backward (B and W)</text>"), std::string::npos);
  EXPECT_NE(text.find("text-anchor=\"middle\">20</text>"), std::string::npos);  // of the axis
  const Sample more = with_everything();
  EXPECT_EQ(count_of(gantt_svg(more.schedule, more.timeline), "</title></rect>"), 10);
}

TEST(Svg, PlacesRectanglesInTime) {
  const Sample s = two_by_two();
  const std::string text = gantt_svg(s.schedule, s.timeline);
  // The chart begins at 76 and is 900 wide for 36 units: F 0.1 begins at 4 and is 100 wide, less
  // the gap.
  EXPECT_NE(text.find("x=\"176\" y=\"30\" width=\"99.6\" height=\"22\"><title>F 0.1"),
            std::string::npos)
      << text;
}

TEST(Svg, RefusesWhatNoViewerShows) {
  Sample s = two_by_two();
  s.schedule.programs[0].resize(most_drawn + 1);
  EXPECT_THROW(gantt_svg(s.schedule, s.timeline), UserError);
}

TEST(Drawing, ATimelineOfAnotherScheduleIsABug) {
  Sample s = two_by_two();
  s.timeline.spans[0].pop_back();
  EXPECT_THROW(gantt_text(s.schedule, s.timeline), Error);
  EXPECT_THROW(gantt_svg(s.schedule, s.timeline), Error);
  EXPECT_THROW(trace_text(s.schedule, s.timeline, {}), Error);
}

struct Flow {
  double start = -1, end = -1;
  int from = -1, to = -1;
};

std::map<long long, Flow> flows_of(const json& trace) {
  std::map<long long, Flow> flows;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "s" && event["ph"] != "f") continue;
    Flow& flow = flows[event["id"].get<long long>()];
    const bool starts = event["ph"] == "s";
    EXPECT_EQ(starts ? flow.from : flow.to, -1) << "an end twice: " << event;
    (starts ? flow.start : flow.end) = event["ts"];
    (starts ? flow.from : flow.to) = event["tid"];
    EXPECT_EQ(event["cat"], "message");
    EXPECT_EQ(event.contains("bp"), !starts);
  }
  return flows;
}

TEST(Trace, HasEveryComputationInOrder) {
  for (const Sample& s : {two_by_two(), with_everything()}) {
    const json trace = json::parse(trace_text(s.schedule, s.timeline, {}));
    std::map<int, double> last;
    std::map<int, int> slices;
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] == "M") continue;
      const int thread = event["tid"];
      EXPECT_EQ(event["pid"], 1);
      EXPECT_GE(event["ts"], last[thread]) << event;
      last[thread] = event["ts"];
      if (event["ph"] != "X") continue;
      ++slices[thread];
      EXPECT_GE(event["dur"], 0);
    }
    EXPECT_EQ(slices[1], s.schedule.programs[0].size() == 4 ? 4 : 8);
  }
}

TEST(Trace, SaysWhatASliceIs) {
  const Sample s = two_by_two();
  const json trace = json::parse(trace_text(s.schedule, s.timeline, {}));
  const json expected = json::parse(
      R"({"name":"BW 1.1","cat":"compute","ph":"X","pid":1,"tid":2,"ts":20.0,"dur":8.0,
          "args":{"segment":"1","micro_batch":1,"part":0}})");
  const auto& events = trace["traceEvents"];
  EXPECT_EQ(std::count(events.begin(), events.end(), expected), 1) << trace.dump(1);
  const auto thread =
      json::parse(R"({"name":"thread_name","ph":"M","pid":1,"tid":2,"args":{"name":"rank 1"}})");
  EXPECT_EQ(std::count(events.begin(), events.end(), thread), 1);
  EXPECT_EQ(events[0]["args"]["name"], "a <b> & \"c\"");
}

TEST(Trace, FlowsJoinWhatTheyCarry) {
  const Sample s = two_by_two();
  const auto flows = flows_of(json::parse(trace_text(s.schedule, s.timeline, {})));
  EXPECT_EQ(flows.size(), 4u);  // two activations, two gradients
  int down = 0;
  for (const auto& [id, flow] : flows) {
    EXPECT_GE(flow.start, 0) << id;
    EXPECT_GT(flow.end, flow.start) << id;
    EXPECT_NE(flow.from, flow.to) << id;
    down += flow.from == 1;
  }
  EXPECT_EQ(down, 2);
}

TEST(Trace, HasNoFlowWithoutBothEnds) {
  const Sample s = with_everything();  // stage 1 → 2 stays on rank 1, much is missing
  const auto flows = flows_of(json::parse(trace_text(s.schedule, s.timeline, {})));
  EXPECT_EQ(flows.size(), 1u);  // the activation of 0.0
  for (const auto& [id, flow] : flows) {
    EXPECT_EQ(flow.from, 1);
    EXPECT_EQ(flow.to, 2);
  }
}

TEST(Trace, SurvivesForeignNames) {
  Sample s = two_by_two();
  s.schedule.name = "\xff\"\\\n";
  s.schedule.graph.segments[0].name = "\"";
  s.schedule.graph.segments[0].branch = "\xc0";
  EXPECT_FALSE(json::parse(trace_text(s.schedule, s.timeline, {})).is_discarded());
}

TEST(Trace, SaysWhoWroteIt) {
  const Sample s = two_by_two();
  const TraceOrigin origin{TraceKind::measured, "run \"1\"", "node-7", "1.2.3"};
  const std::string text = trace_text(s.schedule, s.timeline, origin);
  EXPECT_EQ(json::parse(text).at("otherData").at("kind"), "measured");
  const TraceOrigin read = read_trace_origin(text, "t.json");
  EXPECT_EQ(read.kind, TraceKind::measured);
  EXPECT_EQ(read.run_id, origin.run_id);
  EXPECT_EQ(read.host, "node-7");
  EXPECT_EQ(read.program_version, "1.2.3");
  const TraceOrigin none = read_trace_origin(trace_text(s.schedule, s.timeline, {}), "t.json");
  EXPECT_EQ(none.kind, TraceKind::simulated);
  EXPECT_EQ(none.run_id, "");
}

TEST(Trace, WhatIsNoTraceIsSaidInOneProblem) {
  const char* const others[] = {
      "",
      "{",
      "[1]",
      "{}",
      R"({"traceEvents":[]})",
      R"({"_format":"heteroperf-plan","_version":1})",
      R"({"_format":"heteroperf-trace","_version":1,"traceEvents":[]})",
      R"({"_format":"heteroperf-trace","_version":1,"otherData":{},"traceEvents":[]})",
      R"({"_format":"heteroperf-trace","_version":1,"otherData":{"kind":"guessed"}})",
      R"({"_format":"heteroperf-trace","_version":2,"otherData":{"kind":"measured"}})"};
  for (const char* text : others) {
    try {
      read_trace_origin(text, "t.json");
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_EQ(error.problems().size(), 1u) << text;
      EXPECT_EQ(error.problems().front().problem.rfind("t.json", 0), 0u) << error.what();
    }
  }
}

/// A rank's own lanes, and one beside them, over two steps.
TEST(Trace, OfMeasuredStepsHasAThreadPerLane) {
  const Sample s = two_by_two();
  constexpr std::array<const char*, 3> lanes{"compute", "sums", "overlapped sums"};
  std::vector<TracedRank> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    TracedRank& traced = ranks.emplace_back();
    traced.name = "rank " + std::to_string(rank);
    traced.rank = rank;
    for (std::uint64_t step = 5; step < 7; ++step) {
      const double t = 100 * static_cast<double>(step);
      // Sums interrupt the first computation.
      traced.steps.push_back({step,
                              {t, t + 10},
                              {{0, 0, {t, t + 2}},
                               {1, 0, {t + 2, t + 3}},
                               {0, 0, {t + 3, t + 9}},
                               {1, -1, {t + 9, t + 10}},
                               {2, -1, {t + 1, t + 8}}}});
    }
  }
  const json trace =
      json::parse(lanes_trace_text(s.schedule, ranks, lanes, {TraceKind::measured, "r", "", ""}));
  std::map<int, std::map<std::string, double>> sums;
  std::map<std::pair<int, int>, std::string> names;
  for (const json& event : trace.at("traceEvents")) {
    const int process = event.at("pid").get<int>();
    const std::pair<int, int> thread{process, event.value("tid", 0)};
    if (event.at("name") == "thread_name") names[thread] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    const std::string lane = event.at("cat").get<std::string>();
    EXPECT_TRUE(event.at("args").contains("step"));
    sums[process][lane] += event.at("dur").get<double>();
    EXPECT_EQ(names.at(thread), lane == "step" ? "steps" : lane);
    if (lane != "compute") continue;
    const auto rank = static_cast<std::size_t>(process) - 1;
    EXPECT_EQ(event.at("name"), to_text(s.schedule.programs[rank][0]));
  }
  const std::map<std::string, double> expected{
      {"step", 20}, {"compute", 16}, {"sums", 4}, {"overlapped sums", 14}};
  EXPECT_EQ(sums, (std::map<int, std::map<std::string, double>>{{1, expected}, {2, expected}}));
  // One flow of the first forward in each step, which the second rank takes at its own.
  const auto begun = [&](const char* phase) {
    const auto& events = trace.at("traceEvents");
    return std::count_if(events.begin(), events.end(),
                         [&](const json& event) { return event.at("ph") == phase; });
  };
  EXPECT_EQ(begun("s"), 2);
  EXPECT_EQ(begun("f"), 2);
}

TEST(Drawing, PyTorchsTableMakesAllDrawings) {
  const Schedule schedule =
      read_csv(read_text_file(HETEROPERF_TEST_DATA "/schedules/pytorch_dualpipev_4rank_10mb.csv",
                              "sample"),
               {}, {})
          .schedule;
  const Timeline timeline = simulate(schedule);
  EXPECT_EQ(xml_problem(gantt_svg(schedule, timeline, {.memory = true})), "");
  const auto flows = flows_of(json::parse(trace_text(schedule, timeline, {})));
  EXPECT_EQ(flows.size(), 120u);  // 6 crossing edges, 10 micro-batches, both ways
  for (const auto& [id, flow] : flows) EXPECT_GT(flow.end, flow.start) << id;
  EXPECT_EQ(lines_of(gantt_text(schedule, timeline, {.width = 100})).size(), 7u);
}

}  // namespace
}  // namespace heteroperf
