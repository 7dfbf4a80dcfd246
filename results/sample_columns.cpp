#include "results/sample_columns.hpp"

#include <limits>

#include "results/run_summary.hpp"

namespace heteroperf {
namespace {

template <class E>
using Rows = std::vector<const E*>;

template <class E>
Rows<E> rows_of(const Journal& journal) {
  Rows<E> rows;
  for (const JournalLine& line : journal.lines) {
    if (const E* event = std::get_if<E>(&line.event)) rows.push_back(event);
  }
  return rows;
}

template <class T, class E>
std::vector<T> column(const Rows<E>& rows, auto&& value) {
  std::vector<T> values;
  values.reserve(rows.size());
  for (const E* row : rows) values.push_back(static_cast<T>(value(*row)));
  return values;
}

template <class E>
SampleColumn whole(const Rows<E>& rows, const char* name, const char* long_name, const char* units,
                   auto&& value) {
  return {name, long_name, units, column<std::int64_t>(rows, value)};
}
template <class E>
SampleColumn count(const Rows<E>& rows, const char* name, const char* long_name, const char* units,
                   auto&& value) {
  return {name, long_name, units, column<std::uint64_t>(rows, value)};
}
template <class E>
SampleColumn real(const Rows<E>& rows, const char* name, const char* long_name, const char* units,
                  auto&& value) {
  return {name, long_name, units, column<double>(rows, value)};
}
template <class E>
SampleColumn text(const Rows<E>& rows, const char* name, const char* long_name, auto&& value) {
  return {name, long_name, "", column<std::string>(rows, value)};
}

std::int64_t or_minus_one(std::optional<std::uint64_t> value) {
  return value ? static_cast<std::int64_t>(*value) : -1;
}
double or_nan(std::optional<double> value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

constexpr const char* time_base = "ns";
constexpr const char* seconds_unit = "s";
constexpr const char* plain_count = "1";

SampleTable steps(const Journal& journal) {
  using E = StepEvent;
  const auto rows = rows_of<E>(journal);
  const auto window = summarize(journal).window;
  const auto steady = [&](const E& e) { return window && window->contains(e.t_end_ns) ? 1 : 0; };
  return {
      "steps",
      {whole(rows, "group", "group of ranks", plain_count, [](const E& e) { return e.group; }),
       whole(rows, "trial", "trial, -1 without", plain_count,
             [](const E& e) { return or_minus_one(e.trial); }),
       count(rows, "step", "step within its training", plain_count, [](const E& e) { return e.n; }),
       whole(rows, "t_start_ns", "start on rank 0's monotonic clock", time_base,
             [](const E& e) { return e.t_start_ns; }),
       whole(rows, "t_end_ns", "end on rank 0's monotonic clock", time_base,
             [](const E& e) { return e.t_end_ns; }),
       count(rows, "samples", "samples of the whole group", plain_count,
             [](const E& e) { return e.samples; }),
       count(rows, "tokens", "tokens of the whole group", plain_count,
             [](const E& e) { return e.tokens; }),
       count(rows, "ops_hi", "strict operations, high 64 bits", plain_count,
             [](const E& e) { return e.ops_strict.high(); }),
       count(rows, "ops_lo", "strict operations, low 64 bits", plain_count,
             [](const E& e) { return e.ops_strict.low(); }),
       real(rows, "loss", "mean training loss", "nat", [](const E& e) { return e.loss; }),
       real(rows, "gradient_norm", "global gradient norm before clipping", plain_count,
            [](const E& e) { return e.gradient_norm; }),
       real(rows, "compute_s", "computing, mean over ranks", seconds_unit,
            [](const E& e) { return e.split.compute_s; }),
       real(rows, "communication_s", "exposed communication, mean over ranks", seconds_unit,
            [](const E& e) { return e.split.communication_s; }),
       real(rows, "bubble_s", "waiting for other stages, mean over ranks", seconds_unit,
            [](const E& e) { return e.split.bubble_s; }),
       real(rows, "data_s", "waiting for data, mean over ranks", seconds_unit,
            [](const E& e) { return e.split.data_s; }),
       real(rows, "other_s", "anything else, mean over ranks", seconds_unit,
            [](const E& e) { return e.split.other_s; }),
       {"steady", "1 where the step ended in the steady window", plain_count,
        column<std::uint8_t>(rows, steady)}}};
}

SampleTable trials(const Journal& journal) {
  using E = TrialEvent;
  const auto rows = rows_of<E>(journal);
  return {
      "trials",
      {count(rows, "id", "trial", plain_count, [](const E& e) { return e.id; }),
       whole(rows, "parent", "trial it came from, -1 without", plain_count,
             [](const E& e) { return or_minus_one(e.parent); }),
       whole(rows, "group", "group of ranks", plain_count, [](const E& e) { return e.group; }),
       text(rows, "state", "running or outcome", [](const E& e) { return to_string(e.state); }),
       text(rows, "morph", "change of the parent's graph", [](const E& e) { return e.morph; }),
       text(rows, "graph_hash", "hash of the graph", [](const E& e) { return e.graph_hash; }),
       text(rows, "hyper_parameters", "JSON", [](const E& e) { return e.hyper_parameters.text; }),
       count(rows, "rung", "rung of the budget", plain_count, [](const E& e) { return e.rung; }),
       count(rows, "steps", "steps so far", plain_count, [](const E& e) { return e.steps; }),
       count(rows, "ops_hi", "strict operations so far, high 64 bits", plain_count,
             [](const E& e) { return e.ops.high(); }),
       count(rows, "ops_lo", "strict operations so far, low 64 bits", plain_count,
             [](const E& e) { return e.ops.low(); }),
       real(rows, "quality", "quality reached, NaN without", plain_count,
            [](const E& e) { return or_nan(e.quality); }),
       real(rows, "loss", "validation loss, NaN without", "nat",
            [](const E& e) { return or_nan(e.loss); }),
       text(rows, "reason", "why it ended", [](const E& e) { return e.reason; }),
       whole(rows, "t_start_ns", "start on rank 0's monotonic clock", time_base,
             [](const E& e) { return e.t_start_ns; }),
       whole(rows, "t_end_ns", "end, -1 while it runs", time_base,
             [](const E& e) { return e.t_end_ns.value_or(-1); })}};
}

SampleTable evaluations(const Journal& journal) {
  using E = EvalEvent;
  const auto rows = rows_of<E>(journal);
  return {"evaluations",
          {whole(rows, "group", "group of ranks", plain_count, [](const E& e) { return e.group; }),
           whole(rows, "trial", "trial, -1 without", plain_count,
                 [](const E& e) { return or_minus_one(e.trial); }),
           count(rows, "samples", "held-out samples", plain_count,
                 [](const E& e) { return e.samples; }),
           real(rows, "loss", "mean loss", "nat", [](const E& e) { return e.loss; }),
           real(rows, "accuracy", "share of right answers", plain_count,
                [](const E& e) { return e.accuracy; }),
           count(rows, "ops_hi", "strict operations, high 64 bits", plain_count,
                 [](const E& e) { return e.ops_strict.high(); }),
           count(rows, "ops_lo", "strict operations, low 64 bits", plain_count,
                 [](const E& e) { return e.ops_strict.low(); }),
           whole(rows, "t_start_ns", "start on rank 0's monotonic clock", time_base,
                 [](const E& e) { return e.t_start_ns; }),
           whole(rows, "t_end_ns", "end on rank 0's monotonic clock", time_base,
                 [](const E& e) { return e.t_end_ns; })}};
}

}  // namespace

std::vector<SampleTable> sample_tables(const Journal& journal) {
  return {steps(journal), trials(journal), evaluations(journal)};
}

}  // namespace heteroperf
