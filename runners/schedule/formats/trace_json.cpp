#include "runners/schedule/formats/trace_json.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "metrics/error.hpp"
#include "runners/schedule/task_table.hpp"

namespace heteroperf {
namespace {

/// JSON text of a string; bytes that are no UTF-8 are replaced.
std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class TraceWriter {
 public:
  TraceWriter(const Schedule& schedule, const std::vector<TraceTrack>& tracks)
      : schedule_(schedule),
        graph_(schedule.graph),
        tracks_(tracks),
        tasks_(schedule.graph),
        made_(2 * static_cast<std::size_t>(tasks_.slots()), -1),
        first_track_(schedule.programs.size(), -1) {
    for (const Segment& segment : graph_.segments) {
      branches_.push_back(segment.branch.empty() ? "" : json_string(segment.branch));
      names_.push_back(json_string(segment.name));
    }
    for (int t = static_cast<int>(tracks.size()); t-- > 0;) first_track_[rank_of(t)] = t;
    note_makers();
  }

  std::string write() {
    text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    fmt::format_to(out(),
                   "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":"
                   "{{\"name\":{}}}}}",
                   json_string(schedule_.name));
    for (int t = 0; t < count(); ++t) {
      fmt::format_to(out(),
                     ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{0},\"args\":"
                     "{{\"name\":{2}}}}},\n{{\"name\":\"thread_sort_index\",\"ph\":\"M\","
                     "\"pid\":1,\"tid\":{0},\"args\":{{\"sort_index\":{1}}}}}",
                     t + 1, t, json_string(tracks_[t].name));
    }
    for (int t = 0; t < count(); ++t) add_track(t);
    return std::move(text_) + "\n]}\n";
  }

 private:
  std::back_insert_iterator<std::string> out() { return std::back_inserter(text_); }
  int count() const { return static_cast<int>(tracks_.size()); }
  std::size_t rank_of(int track) const { return static_cast<std::size_t>(tracks_[track].rank); }

  std::int32_t slot(const Instruction& i) const {
    return tasks_.slot(i.segment, i.micro_batch, i.part);
  }
  static bool makes_gradient(Op op) { return op == Op::input_gradient || op == Op::backward; }

  /// The rank that makes each slot's forward value (2·slot) and gradient (2·slot + 1).
  void note_makers() {
    for (std::size_t rank = 0; rank < schedule_.programs.size(); ++rank) {
      for (const Instruction& i : schedule_.programs[rank]) {
        const bool gradient = makes_gradient(i.op);
        if (i.op != Op::forward && !gradient) continue;
        if (slot(i) < 0) continue;
        made_[2 * static_cast<std::size_t>(slot(i)) + gradient] = static_cast<std::int32_t>(rank);
      }
    }
  }

  void add_track(int track) {
    const std::vector<Instruction>& program = schedule_.programs[rank_of(track)];
    const std::vector<TimeSpan>& spans = tracks_[track].spans;
    const bool with_flows = first_track_[rank_of(track)] == track;
    HETEROPERF_EXPECT(spans.size() == program.size());
    for (std::size_t i = 0; i < program.size(); ++i) {
      const TimeSpan span = spans[i];
      HETEROPERF_EXPECT(std::isfinite(span.start) && std::isfinite(span.end));
      if (!is_compute(program[i].op) && !(span.end > span.start)) continue;
      add_slice(track, program[i], span);
      if (with_flows && (program[i].op == Op::forward || makes_gradient(program[i].op))) {
        add_flows(track, program[i], span.start);
      }
    }
  }

  void add_slice(int track, const Instruction& i, TimeSpan span) {
    fmt::format_to(
        out(),
        ",\n{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{},"
        "\"dur\":{},\"args\":{{",
        to_text(i), is_compute(i.op) ? "compute" : "wait", track + 1, span.start,
        span.end - span.start);
    if (i.segment >= 0) {
      const auto segment = static_cast<std::size_t>(i.segment);
      fmt::format_to(out(), "\"segment\":{},", names_[segment]);
      if (!branches_[segment].empty()) {
        fmt::format_to(out(), "\"branch\":{},", branches_[segment]);
      }
    }
    if (i.micro_batch >= 0) fmt::format_to(out(), "\"micro_batch\":{},", i.micro_batch);
    fmt::format_to(out(), "\"part\":{}}}}}", i.part);
  }

  /// Flows that begin here and flows that end here. All are at the start of their slice, the one
  /// moment that lies in it for sure.
  void add_flows(int track, const Instruction& i, double time) {
    const std::int32_t here = slot(i);
    if (here < 0) return;
    if (i.op == Op::forward) {
      for (const int e : tasks_.edges_in(i.segment)) end_flow(track, i, e, 0, time);
      for (const int e : tasks_.edges_out(i.segment)) begin_flow(track, i, e, 0, time);
      return;
    }
    for (const int e : tasks_.edges_out(i.segment)) {
      if (graph_.edges[e].gradient) end_flow(track, i, e, 1, time);
    }
    for (const int e : tasks_.edges_in(i.segment)) {
      if (graph_.edges[e].gradient) begin_flow(track, i, e, 1, time);
    }
  }

  void end_flow(int track, const Instruction& i, int edge, int kind, double time) {
    const int from = kind == 0 ? graph_.edges[edge].from : graph_.edges[edge].to;
    if (crosses(track, i, from, kind)) add_flow(track, i, edge, kind, time, "\"f\",\"bp\":\"e\"");
  }

  void begin_flow(int track, const Instruction& i, int edge, int kind, double time) {
    const int to = kind == 0 ? graph_.edges[edge].to : graph_.edges[edge].from;
    if (crosses(track, i, to, kind)) add_flow(track, i, edge, kind, time, "\"s\"");
  }

  /// Whether the other end of a value is made, and on another rank.
  bool crosses(int track, const Instruction& i, int other_segment, int kind) const {
    const std::int32_t other = tasks_.slot(other_segment, i.micro_batch, i.part);
    if (other < 0) return false;
    const int maker = made_[2 * static_cast<std::size_t>(other) + static_cast<std::size_t>(kind)];
    return maker >= 0 && maker != tracks_[track].rank;
  }

  void add_flow(int track, const Instruction& i, int edge, int kind, double time,
                const char* phase) {
    const long long number =
        ((static_cast<long long>(edge) * graph_.micro_batches + i.micro_batch) * graph_.parts +
         i.part) *
            2 +
        kind;
    fmt::format_to(out(),
                   ",\n{{\"name\":\"{}\",\"cat\":\"message\",\"ph\":{},\"id\":{},\"pid\":1,\"tid\":"
                   "{},\"ts\":{}}}",
                   kind == 0 ? "activation" : "gradient", phase, number, track + 1, time);
  }

  const Schedule& schedule_;
  const PipelineGraph& graph_;
  const std::vector<TraceTrack>& tracks_;
  TaskTable tasks_;
  std::vector<std::int32_t> made_;
  std::vector<int> first_track_;               // [rank]; −1: none
  std::vector<std::string> branches_, names_;  // JSON texts; [segment]
  std::string text_;
};

}  // namespace

std::string trace_text(const Schedule& schedule, const Timeline& timeline) {
  HETEROPERF_EXPECT(timeline.spans.size() == schedule.programs.size());
  std::vector<TraceTrack> tracks;
  for (std::size_t rank = 0; rank < timeline.spans.size(); ++rank) {
    tracks.push_back({fmt::format("rank {}", rank), static_cast<int>(rank), timeline.spans[rank]});
  }
  return trace_text(schedule, tracks);
}

std::string trace_text(const Schedule& schedule, const std::vector<TraceTrack>& tracks) {
  return TraceWriter(schedule, tracks).write();
}

}  // namespace heteroperf
