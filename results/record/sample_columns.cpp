// The rows of a journal as tables of columns, which samples.h5 stores. There is a table per kind of
// row (steps, trials, evaluations, ranks, and the computing time of ranks step by step), and a
// column per field, with a long name and a unit for readers who have the archive alone. The columns
// are a pure function of the journal, so `verify` computes them again and compares them with the
// stored ones. HDF5 has no absent values: a whole number is −1 and a real NaN instead.
#include "results/record/sample_columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "results/record/run_summary.hpp"

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

/// Takes one value from each row and converts it to the column's type.
template <class T, class E>
std::vector<T> column(const Rows<E>& rows, auto&& value) {
  std::vector<T> values;
  values.reserve(rows.size());
  for (const E* row : rows) values.push_back(static_cast<T>(value(*row)));
  return values;
}

/// These make a column of signed, unsigned or real numbers or of texts. `value` takes a row; the
/// long name and the unit become attributes of the dataset.
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
SampleColumn text_column(const Rows<E>& rows, const char* name, const char* long_name,
                         auto&& value) {
  return {name, long_name, "", column<std::string>(rows, value)};
}

/// These are the values that stand for an absent one.
std::int64_t or_minus_one(std::optional<std::uint64_t> value) {
  return value ? static_cast<std::int64_t>(*value) : -1;
}
double or_nan(std::optional<double> value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

constexpr const char* time_base = "ns";
constexpr const char* seconds_unit = "s";
constexpr const char* plain_count = "1";

/// The phase of its group when each step was written. A phase of the whole run replaces those of
/// all groups.
std::vector<std::uint8_t> phases_of_steps(const Journal& journal) {
  Phase all = Phase::setup;
  std::map<std::int32_t, Phase> current;
  std::vector<std::uint8_t> phases;
  for (const JournalLine& line : journal.lines) {
    if (const auto* phase = std::get_if<PhaseEvent>(&line.event)) {
      if (phase->group) {
        current[*phase->group] = phase->phase;
      } else {
        all = phase->phase;
        current.clear();
      }
    } else if (const auto* step = std::get_if<StepEvent>(&line.event)) {
      const auto known = current.find(step->group);
      phases.push_back(static_cast<std::uint8_t>(known == current.end() ? all : known->second));
    }
  }
  return phases;
}

/// The table has one row per optimizer step, in the order of the journal.
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
        column<std::uint8_t>(rows, steady)},
       {"phase", "phase at its end: 0 setup, 1 warmup, 2 measure, 3 evaluate, 4 finish",
        plain_count, phases_of_steps(journal), 2}},
      "t_end_ns"};
}

/// The table has one row per line of a trial, so a trial that ended has two.
SampleTable trials(const Journal& journal) {
  using E = TrialEvent;
  const auto rows = rows_of<E>(journal);
  return {
      "trials",
      {count(rows, "id", "trial", plain_count, [](const E& e) { return e.id; }),
       whole(rows, "parent", "trial it came from, -1 without", plain_count,
             [](const E& e) { return or_minus_one(e.parent); }),
       whole(rows, "group", "group of ranks", plain_count, [](const E& e) { return e.group; }),
       text_column(rows, "state", "running or outcome",
                   [](const E& e) { return to_string(e.state); }),
       text_column(rows, "morph", "change of the parent's graph",
                   [](const E& e) { return e.morph; }),
       text_column(rows, "graph_hash", "hash of the graph",
                   [](const E& e) { return e.graph_hash; }),
       text_column(rows, "hyper_parameters", "JSON",
                   [](const E& e) { return e.hyper_parameters.text; }),
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
       text_column(rows, "reason", "why it ended", [](const E& e) { return e.reason; }),
       whole(rows, "t_start_ns", "start on rank 0's monotonic clock", time_base,
             [](const E& e) { return e.t_start_ns; }),
       whole(rows, "t_end_ns", "end, -1 while it runs", time_base,
             [](const E& e) { return e.t_end_ns.value_or(-1); })},
      "id"};
}

/// The table has one row per evaluation, final or not.
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
                 [](const E& e) { return e.t_end_ns; })},
          "t_end_ns"};
}

/// The journal's lines about one rank; null where it has none. The last line of each kind counts.
struct RankRow {
  std::int32_t rank = 0;
  const RankPlanEvent* plan = nullptr;
  const RankTimeEvent* time = nullptr;
  const MemoryEvent* memory = nullptr;
};

std::vector<RankRow> rank_rows(const Journal& journal) {
  std::map<std::int32_t, RankRow> rows;
  const auto note = [&]<class E>(const Rows<E>& events, const E* RankRow::*member) {
    for (const E* event : events) {
      RankRow& row = rows[event->rank];
      row.rank = event->rank;
      row.*member = event;
    }
  };
  note(rows_of<RankPlanEvent>(journal), &RankRow::plan);
  note(rows_of<RankTimeEvent>(journal), &RankRow::time);
  note(rows_of<MemoryEvent>(journal), &RankRow::memory);
  std::vector<RankRow> list;
  for (const auto& [rank, row] : rows) list.push_back(row);
  return list;
}

std::string stages_of(const RankRow& row) {
  return row.plan == nullptr ? "" : fmt::format("{}", fmt::join(row.plan->stages, ","));
}

/// One row per rank: the plan for it, its measured memory, and where its time went.
SampleTable ranks(const Journal& journal) {
  using E = RankRow;
  const std::vector<RankRow> values = rank_rows(journal);
  Rows<E> rows;
  for (const RankRow& row : values) rows.push_back(&row);
  // A rank whose plan or time the journal lacks keeps its row, with −1 or NaN in it.
  const auto planned = [](auto member) {
    return [member](const E& e) {
      return e.plan == nullptr ? -1 : static_cast<std::int64_t>(e.plan->*member);
    };
  };
  const auto spent = [](double StepSplit::*part) {
    return [part](const E& e) {
      return e.time == nullptr ? or_nan(std::nullopt) : e.time->split.*part;
    };
  };
  const auto bytes = [&](const char* name, const char* long_name, auto member) {
    return whole(rows, name, long_name, "byte", planned(member));
  };
  using P = RankPlanEvent;
  return {
      "ranks",
      {whole(rows, "rank", "rank", plain_count, [](const E& e) { return e.rank; }),
       whole(rows, "position", "place in the pipeline", plain_count, planned(&P::position)),
       text_column(rows, "stages", "stages that it holds", stages_of),
       whole(rows, "tensor_index", "place among the ranks that share its layers", plain_count,
             planned(&P::tensor_index)),
       whole(rows, "tensor_degree", "ranks that share its layers", plain_count,
             planned(&P::tensor_degree)),
       text_column(rows, "device_class", "class of its device",
                   [](const E& e) { return e.plan == nullptr ? "" : e.plan->device_class; }),
       bytes("weights_bytes", "weights, planned", &P::weights_bytes),
       bytes("gradients_bytes", "gradients, planned", &P::gradients_bytes),
       bytes("optimizer_bytes", "optimizer states, planned", &P::optimizer_bytes),
       bytes("activations_bytes", "activations, planned", &P::activations_bytes),
       bytes("buffers_bytes", "buffers, planned", &P::buffers_bytes),
       whole(rows, "peak_bytes", "memory at its fullest, measured", "byte",
             [](const E& e) {
               return e.memory == nullptr ? -1 : static_cast<std::int64_t>(e.memory->peak_bytes);
             }),
       whole(rows, "steps", "steps of the measured phase", plain_count,
             [](const E& e) {
               return e.time == nullptr ? -1 : static_cast<std::int64_t>(e.time->steps);
             }),
       real(rows, "wall_s", "first start to last end of these steps", seconds_unit,
            [](const E& e) { return e.time == nullptr ? or_nan(std::nullopt) : e.time->wall_s; }),
       real(rows, "compute_s", "computing", seconds_unit, spent(&StepSplit::compute_s)),
       real(rows, "communication_s", "exposed communication", seconds_unit,
            spent(&StepSplit::communication_s)),
       real(rows, "bubble_s", "waiting for other stages", seconds_unit,
            spent(&StepSplit::bubble_s)),
       real(rows, "data_s", "waiting for data", seconds_unit, spent(&StepSplit::data_s)),
       real(rows, "other_s", "anything else, between steps too", seconds_unit,
            spent(&StepSplit::other_s))},
      "rank",
      2};
}

/// A value of a `rank_steps` line: the mean over some consecutive steps of one rank.
struct RankStepsRow {
  const RankStepsEvent* event;
  std::size_t index;

  std::uint64_t first_step() const { return event->first_step + index * event->steps_per_value; }
  std::uint64_t steps() const {
    const std::uint64_t before = index * event->steps_per_value;
    return std::min(event->steps_per_value, event->steps - std::min(event->steps, before));
  }
};

/// The table has one row per value of each rank's line.
SampleTable rank_steps(const Journal& journal) {
  using E = RankStepsRow;
  std::vector<E> values;
  for (const RankStepsEvent* event : rows_of<RankStepsEvent>(journal)) {
    for (std::size_t i = 0; i < event->compute_ns.size(); ++i) values.push_back({event, i});
  }
  Rows<E> rows;
  for (const E& row : values) rows.push_back(&row);
  return {"rank_steps",
          {whole(rows, "group", "group of ranks", plain_count,
                 [](const E& e) { return e.event->group; }),
           whole(rows, "rank", "rank", plain_count, [](const E& e) { return e.event->rank; }),
           count(rows, "step", "first step that the row is of", plain_count,
                 [](const E& e) { return e.first_step(); }),
           count(rows, "steps", "consecutive steps that it is the mean of", plain_count,
                 [](const E& e) { return e.steps(); }),
           whole(rows, "compute_ns", "computing in a step, mean", time_base,
                 [](const E& e) { return e.event->compute_ns[e.index]; })},
          "step",
          2};
}

}  // namespace

std::vector<SampleTable> sample_tables(const Journal& journal) {
  return {steps(journal), trials(journal), evaluations(journal), ranks(journal),
          rank_steps(journal)};
}

}  // namespace heteroperf
