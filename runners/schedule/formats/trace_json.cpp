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
  TraceWriter(const Schedule& schedule, const Timeline& timeline)
      : schedule_(schedule),
        graph_(schedule.graph),
        timeline_(timeline),
        tasks_(schedule.graph),
        made_(2 * static_cast<std::size_t>(tasks_.slots()), -1) {
    for (const Segment& segment : graph_.segments) {
      branches_.push_back(segment.branch.empty() ? "" : json_string(segment.branch));
      names_.push_back(json_string(segment.name));
    }
    note_makers();
  }

  std::string write() {
    text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    fmt::format_to(out(),
                   "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":"
                   "{{\"name\":{}}}}}",
                   json_string(schedule_.name));
    for (int rank = 0; rank < ranks(); ++rank) {
      fmt::format_to(out(),
                     ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{0},\"args\":"
                     "{{\"name\":\"rank {1}\"}}}},\n{{\"name\":\"thread_sort_index\",\"ph\":\"M\","
                     "\"pid\":1,\"tid\":{0},\"args\":{{\"sort_index\":{1}}}}}",
                     rank + 1, rank);
    }
    for (int rank = 0; rank < ranks(); ++rank) add_rank(rank);
    return std::move(text_) + "\n]}\n";
  }

 private:
  std::back_insert_iterator<std::string> out() { return std::back_inserter(text_); }
  int ranks() const { return static_cast<int>(schedule_.programs.size()); }

  std::int32_t slot(const Instruction& i) const {
    return tasks_.slot(i.segment, i.micro_batch, i.part);
  }
  static bool makes_gradient(Op op) { return op == Op::input_gradient || op == Op::backward; }

  /// The rank that makes each slot's forward value (2·slot) and gradient (2·slot + 1).
  void note_makers() {
    for (int rank = 0; rank < ranks(); ++rank) {
      for (const Instruction& i : schedule_.programs[rank]) {
        const bool gradient = makes_gradient(i.op);
        if (i.op != Op::forward && !gradient) continue;
        if (slot(i) >= 0) made_[2 * static_cast<std::size_t>(slot(i)) + gradient] = rank;
      }
    }
  }

  void add_rank(int rank) {
    const std::vector<Instruction>& program = schedule_.programs[rank];
    HETEROPERF_EXPECT(timeline_.spans[rank].size() == program.size());
    for (std::size_t i = 0; i < program.size(); ++i) {
      const TimeSpan span = timeline_.spans[rank][i];
      HETEROPERF_EXPECT(std::isfinite(span.start) && std::isfinite(span.end));
      if (!is_compute(program[i].op) && !(span.end > span.start)) continue;
      add_slice(rank, program[i], span);
      if (program[i].op == Op::forward || makes_gradient(program[i].op)) {
        add_flows(rank, program[i], span.start);
      }
    }
  }

  void add_slice(int rank, const Instruction& i, TimeSpan span) {
    fmt::format_to(
        out(),
        ",\n{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{},"
        "\"dur\":{},\"args\":{{",
        to_text(i), is_compute(i.op) ? "compute" : "wait", rank + 1, span.start,
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
  void add_flows(int rank, const Instruction& i, double time) {
    const std::int32_t here = slot(i);
    if (here < 0) return;
    if (i.op == Op::forward) {
      for (const int e : tasks_.edges_in(i.segment)) end_flow(rank, i, e, 0, time);
      for (const int e : tasks_.edges_out(i.segment)) begin_flow(rank, i, e, 0, time);
      return;
    }
    for (const int e : tasks_.edges_out(i.segment)) {
      if (graph_.edges[e].gradient) end_flow(rank, i, e, 1, time);
    }
    for (const int e : tasks_.edges_in(i.segment)) {
      if (graph_.edges[e].gradient) begin_flow(rank, i, e, 1, time);
    }
  }

  void end_flow(int rank, const Instruction& i, int edge, int kind, double time) {
    const int from = kind == 0 ? graph_.edges[edge].from : graph_.edges[edge].to;
    if (crosses(rank, i, from, kind)) add_flow(rank, i, edge, kind, time, "\"f\",\"bp\":\"e\"");
  }

  void begin_flow(int rank, const Instruction& i, int edge, int kind, double time) {
    const int to = kind == 0 ? graph_.edges[edge].to : graph_.edges[edge].from;
    if (crosses(rank, i, to, kind)) add_flow(rank, i, edge, kind, time, "\"s\"");
  }

  /// Whether the other end of a value is made, and on another rank.
  bool crosses(int rank, const Instruction& i, int other_segment, int kind) const {
    const std::int32_t other = tasks_.slot(other_segment, i.micro_batch, i.part);
    if (other < 0) return false;
    const int maker = made_[2 * static_cast<std::size_t>(other) + static_cast<std::size_t>(kind)];
    return maker >= 0 && maker != rank;
  }

  void add_flow(int rank, const Instruction& i, int edge, int kind, double time,
                const char* phase) {
    const long long number =
        ((static_cast<long long>(edge) * graph_.micro_batches + i.micro_batch) * graph_.parts +
         i.part) *
            2 +
        kind;
    fmt::format_to(out(),
                   ",\n{{\"name\":\"{}\",\"cat\":\"message\",\"ph\":{},\"id\":{},\"pid\":1,\"tid\":"
                   "{},\"ts\":{}}}",
                   kind == 0 ? "activation" : "gradient", phase, number, rank + 1, time);
  }

  const Schedule& schedule_;
  const PipelineGraph& graph_;
  const Timeline& timeline_;
  TaskTable tasks_;
  std::vector<std::int32_t> made_;
  std::vector<std::string> branches_, names_;  // JSON texts; [segment]
  std::string text_;
};

}  // namespace

std::string trace_text(const Schedule& schedule, const Timeline& timeline) {
  HETEROPERF_EXPECT(timeline.spans.size() == schedule.programs.size());
  return TraceWriter(schedule, timeline).write();
}

}  // namespace heteroperf
