// The rows of a journal as tables of columns, which samples.h5 stores. There is a table per kind of
// row (steps, trials, evaluations, ranks, and the computing time of ranks step by step), and a
// column per field, with a long name and a unit for readers who have the archive alone. The columns
// are a pure function of the journal, so `verify` computes them again and compares them with the
// stored ones. HDF5 has no absent values: a whole number is −1 and a real NaN instead.
#include "results/record/sample_columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "results/record/run_summary.hpp"

namespace heteroperf {
namespace {

template <class E>
using Rows = std::vector<const E*>;

/// These turn a value into the one that its column keeps.
std::string stored(std::string value) { return value; }
std::uint8_t stored(std::uint8_t value) { return value; }
double stored(double value) { return value; }
std::int64_t stored(std::signed_integral auto value) { return value; }
std::uint64_t stored(std::unsigned_integral auto value) { return value; }
double stored(std::optional<double> value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}
template <std::integral T>
std::int64_t stored(std::optional<T> value) {
  return value ? static_cast<std::int64_t>(*value) : -1;
}

/// The name of a number says its unit. Losses are in nats, and anything else is a plain number.
const char* unit_by(std::string_view name) {
  if (name == "loss") return "nat";
  if (name.ends_with("_bytes")) return "byte";
  return name.ends_with("_ns") ? "ns" : name.ends_with("_s") ? "s" : "1";
}

/// Makes columns of rows. `value` takes a row or is a member of it; the long name and the unit
/// become attributes of the dataset. Texts have no unit.
template <class E>
struct ColumnsOf {
  Rows<E> rows;

  SampleColumn operator()(const char* name, const char* long_name, auto&& value) const {
    using Stored = decltype(stored(std::invoke(value, *rows.front())));
    std::vector<Stored> values;
    values.reserve(rows.size());
    for (const E* row : rows) values.push_back(stored(std::invoke(value, *row)));
    const char* units = std::is_same_v<Stored, std::string> ? "" : unit_by(name);
    return {name, long_name, units, std::move(values)};
  }
};

/// Gives a part of a member, such as one of a step's times.
template <class Whole, class Member, class Part>
auto part_of_row(Member Whole::*member, Part Member::*part) {
  return [member, part](const Whole& row) { return row.*member.*part; };
}

/// Give the halves of a count of operations.
template <class E>
auto high_word(Ops E::*ops) {
  return [ops](const E& row) { return (row.*ops).high(); };
}
template <class E>
auto low_word(Ops E::*ops) {
  return [ops](const E& row) { return (row.*ops).low(); };
}

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
  const ColumnsOf<E> column{journal.all<E>()};
  const auto window = summarize(journal).window;
  const auto steady = [&](const E& e) {
    return static_cast<std::uint8_t>(window && window->contains(e.t_end_ns));
  };
  const auto spent = [](double StepSplit::*part) { return part_of_row(&E::split, part); };
  return {
      "steps",
      {column("group", "group of ranks", &E::group),
       column("trial", "trial, -1 without", &E::trial),
       column("step", "step within its training", &E::n),
       column("t_start_ns", "start on rank 0's monotonic clock", &E::t_start_ns),
       column("t_end_ns", "end on rank 0's monotonic clock", &E::t_end_ns),
       column("samples", "samples of the whole group", &E::samples),
       column("tokens", "tokens of the whole group", &E::tokens),
       column("ops_hi", "strict operations, high 64 bits", high_word(&E::ops_strict)),
       column("ops_lo", "strict operations, low 64 bits", low_word(&E::ops_strict)),
       column("loss", "mean training loss", &E::loss),
       column("gradient_norm", "global gradient norm before clipping", &E::gradient_norm),
       column("compute_s", "computing, mean over ranks", spent(&StepSplit::compute_s)),
       column("communication_s", "exposed communication, mean over ranks",
              spent(&StepSplit::communication_s)),
       column("bubble_s", "waiting for other stages, mean over ranks", spent(&StepSplit::bubble_s)),
       column("data_s", "waiting for data, mean over ranks", spent(&StepSplit::data_s)),
       column("other_s", "anything else, mean over ranks", spent(&StepSplit::other_s)),
       column("steady", "1 where the step ended in the steady window", steady),
       {"phase", "phase at its end: 0 setup, 1 warmup, 2 measure, 3 evaluate, 4 finish", "1",
        phases_of_steps(journal), 2}},
      "t_end_ns"};
}

/// The table has one row per line of a trial, so a trial that ended has two.
SampleTable trials(const Journal& journal) {
  using E = TrialEvent;
  const ColumnsOf<E> column{journal.all<E>()};
  return {
      "trials",
      {column("id", "trial", &E::id),
       column("parent", "trial it came from, -1 without", &E::parent),
       column("group", "group of ranks", &E::group),
       column("state", "running or outcome", [](const E& e) { return to_string(e.state); }),
       column("morph", "change of the parent's graph", &E::morph),
       column("graph_hash", "hash of the graph", &E::graph_hash),
       column("hyper_parameters", "JSON", part_of_row(&E::hyper_parameters, &JsonText::text)),
       column("rung", "rung of the budget", &E::rung), column("steps", "steps so far", &E::steps),
       column("ops_hi", "strict operations so far, high 64 bits", high_word(&E::ops)),
       column("ops_lo", "strict operations so far, low 64 bits", low_word(&E::ops)),
       column("quality", "quality reached, NaN without", &E::quality),
       column("loss", "validation loss, NaN without", &E::loss),
       column("reason", "why it ended", &E::reason),
       column("t_start_ns", "start on rank 0's monotonic clock", &E::t_start_ns),
       column("t_end_ns", "end, -1 while it runs", &E::t_end_ns)},
      "id"};
}

/// The table has one row per evaluation, final or not.
SampleTable evaluations(const Journal& journal) {
  using E = EvalEvent;
  const ColumnsOf<E> column{journal.all<E>()};
  return {
      "evaluations",
      {column("group", "group of ranks", &E::group),
       column("trial", "trial, -1 without", &E::trial),
       column("samples", "held-out samples", &E::samples), column("loss", "mean loss", &E::loss),
       column("accuracy", "share of right answers", &E::accuracy),
       column("ops_hi", "strict operations, high 64 bits", high_word(&E::ops_strict)),
       column("ops_lo", "strict operations, low 64 bits", low_word(&E::ops_strict)),
       column("t_start_ns", "start on rank 0's monotonic clock", &E::t_start_ns),
       column("t_end_ns", "end on rank 0's monotonic clock", &E::t_end_ns)},
      "t_end_ns"};
}

/// One row per rank: the plan for it, its measured memory, and where its time went.
SampleTable ranks(const Journal& journal) {
  using E = RankUse;
  using P = RankPlanEvent;
  const std::vector<E> rows = rank_uses(journal);
  ColumnsOf<E> column;
  for (const E& row : rows) column.rows.push_back(&row);
  // A rank whose plan, time or memory the journal lacks keeps its row, with −1 or NaN in it.
  const auto whole_of = [](auto line, auto member) {
    return [line, member](const E& e) {
      return e.*line ? static_cast<std::int64_t>(*(e.*line).*member) : -1;
    };
  };
  const auto planned = [&](auto member) { return whole_of(&E::plan, member); };
  const auto timed = [](auto&& seconds) {
    return
        [seconds](const E& e) { return e.time ? std::optional(seconds(*e.time)) : std::nullopt; };
  };
  const auto wall_s = timed([](const RankTimeEvent& time) { return time.wall_s; });
  const auto spent = [&](double StepSplit::*part) {
    return timed([part](const RankTimeEvent& time) { return time.split.*part; });
  };
  const auto stages = [](const E& e) {
    return e.plan ? fmt::format("{}", fmt::join(e.plan->stages, ",")) : "";
  };
  return {
      "ranks",
      {column("rank", "rank", &E::rank),
       column("position", "place in the pipeline", planned(&P::position)),
       column("stages", "stages that it holds", stages),
       column("tensor_index", "place among the ranks that share its layers",
              planned(&P::tensor_index)),
       column("tensor_degree", "ranks that share its layers", planned(&P::tensor_degree)),
       column("device_class", "class of its device",
              [](const E& e) { return e.plan ? e.plan->device_class : ""; }),
       column("weights_bytes", "weights, planned", planned(&P::weights_bytes)),
       column("gradients_bytes", "gradients, planned", planned(&P::gradients_bytes)),
       column("optimizer_bytes", "optimizer states, planned", planned(&P::optimizer_bytes)),
       column("activations_bytes", "activations, planned", planned(&P::activations_bytes)),
       column("buffers_bytes", "buffers, planned", planned(&P::buffers_bytes)),
       column("peak_bytes", "memory at its fullest, measured",
              whole_of(&E::memory, &MemoryEvent::peak_bytes)),
       column("steps", "steps of the measured phase", whole_of(&E::time, &RankTimeEvent::steps)),
       column("wall_s", "first start to last end of these steps", wall_s),
       column("compute_s", "computing", spent(&StepSplit::compute_s)),
       column("communication_s", "exposed communication", spent(&StepSplit::communication_s)),
       column("bubble_s", "waiting for other stages", spent(&StepSplit::bubble_s)),
       column("data_s", "waiting for data", spent(&StepSplit::data_s)),
       column("other_s", "anything else, between steps too", spent(&StepSplit::other_s))},
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
  for (const RankStepsEvent* event : journal.all<RankStepsEvent>()) {
    for (std::size_t i = 0; i < event->compute_ns.size(); ++i) values.push_back({event, i});
  }
  ColumnsOf<E> column;
  for (const E& row : values) column.rows.push_back(&row);
  return {"rank_steps",
          {column("group", "group of ranks", [](const E& e) { return e.event->group; }),
           column("rank", "rank", [](const E& e) { return e.event->rank; }),
           column("step", "first step that the row is of", &E::first_step),
           column("steps", "consecutive steps that it is the mean of", &E::steps),
           column("compute_ns", "computing in a step, mean",
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
