// Chrome's trace events, one per line. A *track* is a thread of the trace; measured traces have a
// process per rank with a thread per *lane* (what a rank does at once: compute, sends, …). *Flows*
// are the arrows from the computation that makes a value to those on other ranks that need it; both
// of their ends must lie inside a slice, so they stand at its start.

#include "runners/schedule/formats/trace_json.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "runners/schedule/ir/graph_index.hpp"

namespace heteroperf {
namespace {

/// The JSON text of a string; bytes that are no UTF-8 are replaced.
std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

constexpr const char* trace_format = "heteroperf-trace";
constexpr int trace_version = 1;
constexpr const char* step_lane = "step";

/// The beginning of a trace, up to its first event.
std::string head_of(const TraceOrigin& origin) {
  std::string text = fmt::format(
      "{{\"_format\":\"{}\",\"_version\":{},\"displayTimeUnit\":\"ms\",\"otherData\":{{\"kind\":\"{"
      "}\"",
      trace_format, trace_version, value_names(origin.kind)[static_cast<std::size_t>(origin.kind)]);
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) text += fmt::format(",\"{}\":{}", key, json_string(value));
  };
  add("run_id", origin.run_id);
  add("host", origin.host);
  add("program_version", origin.program_version);
  return text + "},\"traceEvents\":[\n";
}

/// A thread of the trace, and the rank of the schedule whose program it shows.
struct TraceRow {
  int process = 1, thread = 1;
  std::size_t rank = 0;
};

/// Writes a trace of simulated or measured tracks.
class TraceWriter {
 public:
  TraceWriter(const Schedule& schedule, const TraceOrigin& origin)
      : schedule_(schedule),
        graph_(schedule.graph),
        tasks_(schedule.graph),
        made_(2 * static_cast<std::size_t>(tasks_.slots()), -1),
        text_(head_of(origin)) {
    for (const Segment& segment : graph_.segments) {
      branches_.push_back(segment.branch.empty() ? "" : json_string(segment.branch));
      names_.push_back(json_string(segment.name));
    }
    note_makers();
  }

  std::string write(const std::vector<TraceTrack>& tracks) {
    name_process(1, schedule_.name);
    for (std::size_t t = 0; t < tracks.size(); ++t) {
      name_thread(row_of(tracks, t), tracks[t].name);
    }
    const std::vector<std::size_t> first = first_of_each_rank(tracks);
    for (std::size_t t = 0; t < tracks.size(); ++t) {
      const TraceRow row = row_of(tracks, t);
      add_track(row, tracks[t].spans, first[row.rank] == t);
    }
    return std::move(text_) + "\n]}\n";
  }

  std::string write(const std::vector<TracedRank>& ranks, std::span<const char* const> lanes) {
    const std::vector<std::size_t> first = first_of_each_rank(ranks);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      TraceRow row{static_cast<int>(r) + 1, 1, static_cast<std::size_t>(ranks[r].rank)};
      name_process(row.process, ranks[r].name);
      name_thread(row, "steps");
      for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        row.thread = thread_of(lane);
        name_thread(row, lanes[lane]);
      }
      for (const TracedStep& step : ranks[r].steps)
        add_step(row, step, lanes, first[row.rank] == r);
    }
    return std::move(text_) + "\n]}\n";
  }

 private:
  std::back_insert_iterator<std::string> out() { return std::back_inserter(text_); }
  /// The thread of a lane; the first thread of a process has its steps.
  static int thread_of(std::size_t lane) { return static_cast<int>(lane) + 2; }

  static TraceRow row_of(const std::vector<TraceTrack>& tracks, std::size_t t) {
    return {1, static_cast<int>(t) + 1, static_cast<std::size_t>(tracks[t].rank)};
  }

  template <class Runner>
  /// The first runner of each rank; only those have flows.
  std::vector<std::size_t> first_of_each_rank(const std::vector<Runner>& runners) const {
    std::vector<std::size_t> first(schedule_.programs.size(), runners.size());
    for (std::size_t i = runners.size(); i-- > 0;) first.at(runners[i].rank) = i;
    return first;
  }

  /// Separates the next event from the one before.
  void part_events() {
    if (any_) text_ += ",\n";
    any_ = true;
  }

  /// Names a process or thread, of these ids, and gives it its place.
  void name_row(const char* kind, const std::string& ids, int place, const std::string& name) {
    part_events();
    fmt::format_to(
        out(),
        "{{\"name\":\"{0}_name\",\"ph\":\"M\",{1},\"args\":{{\"name\":{3}}}}},\n"
        "{{\"name\":\"{0}_sort_index\",\"ph\":\"M\",{1},\"args\":{{\"sort_index\":{2}}}}}",
        kind, ids, place, json_string(name));
  }
  void name_process(int process, const std::string& name) {
    name_row("process", fmt::format("\"pid\":{}", process), process, name);
  }
  void name_thread(TraceRow row, const std::string& name) {
    name_row("thread", fmt::format("\"pid\":{},\"tid\":{}", row.process, row.thread),
             row.thread - 1, name);
  }

  std::int32_t slot(const Instruction& i) const { return tasks_.slot(i); }

  /// Notes the rank that makes each slot's forward value (2·slot) and gradient (2·slot + 1).
  void note_makers() {
    for (std::size_t rank = 0; rank < schedule_.programs.size(); ++rank) {
      for (const Instruction& i : schedule_.programs[rank]) {
        const bool gradient = makes_input_gradient(i.op);
        if (i.op != Op::forward && !gradient) continue;
        if (slot(i) < 0) continue;
        made_[2 * static_cast<std::size_t>(slot(i)) + gradient] = static_cast<std::int32_t>(rank);
      }
    }
  }

  /// Adds the slices of a track, and its flows.
  void add_track(TraceRow row, const std::vector<TimeSpan>& spans, bool with_flows) {
    const std::vector<Instruction>& program = schedule_.programs[row.rank];
    HETEROPERF_EXPECT(spans.size() == program.size());
    for (std::size_t i = 0; i < program.size(); ++i) {
      const TimeSpan span = spans[i];
      const bool computes = is_compute(program[i].op);
      if (!computes && !(span.end > span.start)) continue;
      begin_slice(row, to_text(program[i]), computes ? "compute" : "wait", span);
      add_instruction(program[i]);
      text_ += "}}";
      if (with_flows) add_flows(row, program[i], span.start, 0);
    }
  }

  /// Adds the slices of a measured step on all lanes.
  void add_step(TraceRow row, const TracedStep& step, std::span<const char* const> lanes,
                bool with_flows) {
    const std::vector<Instruction>& program = schedule_.programs[row.rank];
    row.thread = 1;
    begin_slice(row, fmt::format("step {}", step.number), step_lane, step.span);
    fmt::format_to(out(), "\"step\":{}}}}}", step.number);
    std::int32_t latest = -1;
    for (const LaneSlice& slice : step.slices) {
      const Instruction* const instruction =
          slice.instruction < 0 ? nullptr : &program.at(slice.instruction);
      const bool computes = slice.lane == 0 && instruction != nullptr;
      row.thread = thread_of(slice.lane);
      begin_slice(row, computes ? to_text(*instruction) : lanes[slice.lane], lanes[slice.lane],
                  slice.span);
      fmt::format_to(out(), "\"step\":{}", step.number);
      if (instruction != nullptr) {
        fmt::format_to(out(), ",\"instruction\":\"{}\",", to_text(*instruction));
        add_instruction(*instruction);
      }
      text_ += "}}";
      // A computation that sums interrupt has several slices, but begins its flows once.
      if (with_flows && computes && slice.instruction != latest) {
        add_flows(row, *instruction, slice.span.start, static_cast<long long>(step.number));
        latest = slice.instruction;
      }
    }
  }

  /// Begins an event; its args stay open.
  void begin_slice(TraceRow row, const std::string& name, const char* category, TimeSpan span) {
    HETEROPERF_EXPECT(std::isfinite(span.start) && std::isfinite(span.end));
    part_events();
    fmt::format_to(out(),
                   "{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{},"
                   "\"dur\":{},\"args\":{{",
                   name, category, row.process, row.thread, span.start, span.end - span.start);
  }

  /// Adds the args that name an instruction.
  void add_instruction(const Instruction& i) {
    if (i.segment >= 0) {
      fmt::format_to(out(), "\"segment\":{},", names_[i.segment]);
      if (!branches_[i.segment].empty()) {
        fmt::format_to(out(), "\"branch\":{},", branches_[i.segment]);
      }
    }
    if (i.micro_batch >= 0) fmt::format_to(out(), "\"micro_batch\":{},", i.micro_batch.value());
    fmt::format_to(out(), "\"part\":{}", i.part);
  }

  /// Adds the flows that begin at this computation and those that end here.
  void add_flows(TraceRow row, const Instruction& i, double time, long long step) {
    const bool gradient = makes_input_gradient(i.op);
    if ((i.op != Op::forward && !gradient) || slot(i) < 0) return;
    for (const bool begins : {false, true}) {
      const bool leaves_forwards = begins != gradient;
      for (const EdgeId e :
           leaves_forwards ? tasks_.edges_out(i.segment) : tasks_.edges_in(i.segment)) {
        const Edge& edge = graph_.edges[e];
        if (gradient && !edge.gradient) continue;
        if (!crosses(row, i, leaves_forwards ? edge.to : edge.from, gradient)) continue;
        add_flow(row, flow_number(i, e, gradient, step), gradient, time,
                 begins ? "\"s\"" : "\"f\",\"bp\":\"e\"");
      }
    }
  }

  /// Says whether the value of the segment at the other end is made, and on another rank.
  bool crosses(TraceRow row, const Instruction& i, SegmentId far_segment, bool gradient) const {
    const std::int32_t far = tasks_.slot(far_segment, i.micro_batch, i.part);
    if (far < 0) return false;
    const int maker = made_[2 * static_cast<std::size_t>(far) + static_cast<std::size_t>(gradient)];
    return maker >= 0 && maker != static_cast<int>(row.rank);
  }

  /// A number that both ends of a flow share and no other flow has.
  long long flow_number(const Instruction& i, EdgeId edge, bool gradient, long long step) const {
    const auto edges = static_cast<long long>(graph_.edges.size());
    return (((step * edges + edge.value()) * graph_.micro_batches + i.micro_batch.value()) *
                graph_.parts +
            i.part) *
               2 +
           (gradient ? 1 : 0);
  }

  void add_flow(TraceRow row, long long number, bool gradient, double time, const char* phase) {
    part_events();
    fmt::format_to(out(),
                   "{{\"name\":\"{}\",\"cat\":\"message\",\"ph\":{},\"id\":{},\"pid\":{},\"tid\":"
                   "{},\"ts\":{}}}",
                   gradient ? "gradient" : "activation", phase, number, row.process, row.thread,
                   time);
  }

  const Schedule& schedule_;
  const PipelineGraph& graph_;
  TaskTable tasks_;
  std::vector<std::int32_t> made_;
  IdVector<SegmentId, std::string> branches_, names_;  // JSON texts
  std::string text_;
  bool any_ = false;  // there are events
};

}  // namespace

std::string trace_text(const Schedule& schedule, const Timeline& timeline,
                       const TraceOrigin& origin) {
  HETEROPERF_EXPECT(timeline.spans.size() == schedule.programs.size());
  std::vector<TraceTrack> tracks;
  for (std::size_t rank = 0; rank < timeline.spans.size(); ++rank) {
    tracks.push_back({fmt::format("rank {}", rank), static_cast<int>(rank), timeline.spans[rank]});
  }
  return trace_text(schedule, tracks, origin);
}

std::string trace_text(const Schedule& schedule, const std::vector<TraceTrack>& tracks,
                       const TraceOrigin& origin) {
  return TraceWriter(schedule, origin).write(tracks);
}

std::string lanes_trace_text(const Schedule& schedule, const std::vector<TracedRank>& ranks,
                             std::span<const char* const> lanes, const TraceOrigin& origin) {
  return TraceWriter(schedule, origin).write(ranks, lanes);
}

/// Only the head is read; the events may be anything.
TraceOrigin read_trace_origin(const std::string& text, const std::string& file) {
  require_stated_format(text, file, trace_format);
  const Json trace = parse_strict_json(text, file, trace_format);
  require_format(trace, file, trace_format, trace_version);
  TraceOrigin origin;
  DocumentProblems problems(file);
  const auto origin_json = trace.find("otherData");
  if (origin_json == trace.end() || !origin_json->is_object()) {
    problems.add("otherData is missing", "it says who wrote the trace");
    problems.throw_if_any();
  }
  const auto take = [&](const char* key, auto& out) {
    const auto value = origin_json->find(key);
    if (value != origin_json->end()) {
      read_value(*value, std::string("otherData.") + key, out, problems);
    }
    return value != origin_json->end();
  };
  if (!take("kind", origin.kind)) problems.add("otherData.kind is missing");
  take("run_id", origin.run_id);
  take("host", origin.host);
  take("program_version", origin.program_version);
  problems.throw_if_any();
  return origin;
}

}  // namespace heteroperf
