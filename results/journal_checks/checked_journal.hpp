#pragma once

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <string_view>
#include <vector>

#include "results/journal_checks/run_outline.hpp"
#include "results/record/graph_book.hpp"
#include "results/record/verify.hpp"
#include "workloads/data/data_source.hpp"

namespace heteroperf {

constexpr double sum_rounding = 1e-9;  ///< as a share, of another order of adding up

/// True for sums of the same numbers that were added up in another order.
inline bool near(double expected, double actual) {
  return std::fabs(expected - actual) <= sum_rounding * std::fmax(1.0, std::fabs(expected));
}

/// Holds many lines of a journal to one rule and counts them. The result is one row of `verify`:
/// fine with the count, or else the first wrong line with its expected and its actual value. Later
/// faults are left out, since one wrong line often makes those after it wrong as well.
class LineCheck {
 public:
  /// `what` is the noun of the count, "steps".
  LineCheck(std::string name, std::string what) : name_(std::move(name)), what_(std::move(what)) {}

  /// Goes to a line, which what follows is about. Lines count from 1 on.
  void at(std::size_t line) { line_ = line; }
  std::size_t line() const { return line_; }
  /// Goes through the lines of a journal and calls those of the visitors that take the line's kind
  /// of event, in their order. It ends at the last line.
  template <class... Visits>
  void each(const Journal& journal, Visits&&... visits) {
    for (line_ = 1; line_ <= journal.lines.size(); ++line_) {
      std::visit([&](const auto& event) { (visit_if(visits, event), ...); },
                 journal.lines[line_ - 1].event);
    }
    at(journal.lines.size());
  }

  /// Compares two values of the line; `field` names the value in a message.
  template <class Expected, class Actual>
  void equal(std::string_view field, const Expected& expected, const Actual& actual) {
    ++count_;
    if (expected == actual || wrong_) return;
    tell(fmt::format("{} {}", field, told(expected)), fmt::format("{} {}", field, told(actual)));
  }
  /// As equal(), for rules that are no equality. `expected` and `actual` are the forms of two texts
  /// over the same values. They are filled in only for the line that is told, since texts are dear
  /// where a journal has a million lines.
  template <class... Values>
  void hold(bool holds, fmt::format_string<const Values&...> expected,
            fmt::format_string<const Values&...> actual, const Values&... values) {
    ++count_;
    if (holds || wrong_) return;
    tell(fmt::format(expected, values...), fmt::format(actual, values...));
  }

  /// Counts something that the caller has held already.
  void pass() { ++count_; }

  /// Everything that was held so far; 0 where the journal has no line for this rule.
  std::size_t count() const { return count_; }
  VerifyCheck result() const {
    const std::string all = fmt::format("{} {}", count_, what_);
    return wrong_.value_or(VerifyCheck{name_, true, all, all});
  }

 private:
  /// A value of an enumeration is told by its name.
  static const auto& told(const auto& value) { return value; }
  template <class Enum>
  requires std::is_enum_v<Enum>
  static auto told(const Enum& value) { return to_string(value); }
  template <class Visit, class E>
  static void visit_if(Visit& visit, const E& event) {
    if constexpr (std::invocable<Visit&, const E&>) visit(event);
  }
  void tell(const std::string& expected, std::string actual) {
    wrong_ =
        VerifyCheck{name_, false, fmt::format("line {}: {}", line_, expected), std::move(actual)};
  }

  std::string name_, what_;
  std::size_t line_ = 1, count_ = 0;
  std::optional<VerifyCheck> wrong_;
};

/// A plan that came into force in mid-run.
struct LaterPlan {
  std::uint64_t first_step = 0;  ///< number of the first step by it
  PlanOutline outline;
};

/// A journal with all that its lines are held to. A journal may end after any line: what is not
/// there yet is null or absent, and holds nothing. The journal must outlive this object; opening
/// documents and graphs are parsed once, in the constructor.
struct CheckedJournal {
  explicit CheckedJournal(const Journal& journal);
  CheckedJournal(const CheckedJournal&) = delete;
  CheckedJournal& operator=(const CheckedJournal&) = delete;

  /// An event and its line, which counts from 1 on. It is false, and the line 0, where there is
  /// none.
  template <class E>
  struct At {
    const E* event = nullptr;
    std::size_t line = 0;
    explicit operator bool() const { return event != nullptr; }
    const E* operator->() const { return event; }
  };
  /// The first event of this kind with its line.
  template <class E>
  At<E> first() const {
    for (const JournalLine& line : journal.lines) {
      const E* event = std::get_if<E>(&line.event);
      if (event != nullptr) return {event, 1 + static_cast<std::size_t>(&line - &journal.lines[0])};
    }
    return {};
  }

  // Neither graphs nor documents that cannot be read throw: the outline and the book name the
  // fault, and a check tells it.
  const Journal& journal;
  const RunOutline outline;
  const GraphBook graphs;
  const At<StartEvent> start;
  const At<ScaleEvent> scale;
  const At<WorkloadEvent> workload;
  /// The plans of `adapt` lines, in their order; they end before one that cannot be read.
  std::vector<LaterPlan> later_plans;

  /// Counts the plan of a step from 0, the one of the `plan` line.
  std::size_t plan_number(std::uint64_t step) const;
  /// The plan that was in force last; null where no plan is there.
  const PlanOutline* last_plan() const {
    if (!later_plans.empty()) return &later_plans.back().outline;
    return outline.plan ? &*outline.plan : nullptr;
  }
  /// True for a search, whose plan is a list of groups; false where no plan is there yet.
  bool is_search() const { return outline.plan && outline.plan->of_search; }
  /// True for a run that moved by turns with another program: its clock leaves out what it stood
  /// still, so durations are not held.
  bool is_lockstep() const { return start && start->lockstep.value_or(false); }
  /// True where the run says in its `stop` line that it did all that was asked for.
  bool is_complete() const;
  /// Steps that were done before this run, where it goes on from a checkpoint; for a fixed model
  /// only.
  std::uint64_t first_step() const { return start ? start->parent_step.value_or(0) : 0; }
  /// The model that a step or an evaluation is of; null where the journal does not hold it.
  const ModelGraph* model(std::optional<std::uint64_t> trial) const { return graphs.of(trial); }
  /// The model of a fixed workload, or of a search's first trial; null where there is none.
  const ModelGraph* any_model() const;
  /// The class of a rank, as the plan and the binding say it; nothing where neither does.
  std::optional<std::string> device_class(std::int32_t rank) const;
  /// Time from the first line to this one, which counts from 1 on.
  std::int64_t open_ns(std::size_t line) const {
    return journal.lines[line - 1].t_ns - journal.lines.front().t_ns;
  }
  /// 0 where the journal ends before its `scale` line.
  std::int64_t ranks() const { return scale ? scale->ranks : 0; }
};

/// True for the numbers of a run's groups; a fixed model has the one group 0.
bool is_group(const CheckedJournal& run, std::int32_t group);

/// Answers that the model gives for one sample: its tokens, or 1 for an image or a pair.
std::uint64_t answers_of_sample(const ModelGraph& graph);
/// Returns the family of models that take such samples.
WorkloadFamily family_of(SampleKind samples);
/// Tokens of one sample of a language model; 0 for other samples.
std::uint64_t tokens_of_sample(const ModelGraph& graph);

// The checks below are one row of `verify` each. A check passes the lines that it holds to `check`,
// which counts them and keeps the first that is wrong. results/README.md, "Fields", lists for every
// field the check that holds it. These are the opening lines (opening_checks.cpp; the hosts stand
// in rank_checks.cpp).
void check_opening(const CheckedJournal& run, LineCheck& check);
void check_request(const CheckedJournal& run, LineCheck& check);
void check_plan_line(const CheckedJournal& run, LineCheck& check);
void check_devices(const CheckedJournal& run, LineCheck& check);
void check_model(const CheckedJournal& run, LineCheck& check);
void check_data_line(const CheckedJournal& run, LineCheck& check);
void check_hosts(const CheckedJournal& run, LineCheck& check);

// This one holds the order of the phases (phase_checks.cpp).
void check_phases(const CheckedJournal& run, LineCheck& check);

// These hold steps, evaluations and the end of the run (step_checks.cpp).
void check_step_samples(const CheckedJournal& run, LineCheck& check);
void check_step_tokens(const CheckedJournal& run, LineCheck& check);
void check_evaluations(const CheckedJournal& run, LineCheck& check);
void check_looks(const CheckedJournal& run, LineCheck& check);
void check_checkpoint_lines(const CheckedJournal& run, LineCheck& check);
void check_ending(const CheckedJournal& run, LineCheck& check);

// This one holds looks at the plan of a training that adapts (adaptation_checks.cpp).
void check_adaptations(const CheckedJournal& run, LineCheck& check);

// These hold the trials of a search and its master (trial_checks.cpp).
void check_trial_lines(const CheckedJournal& run, LineCheck& check);
void check_trial_quality(const CheckedJournal& run, LineCheck& check);
void check_best_trial(const CheckedJournal& run, LineCheck& check);
void check_search_line(const CheckedJournal& run, LineCheck& check);

// These hold the lines that single ranks write about themselves (rank_checks.cpp).
void check_rank_plans(const CheckedJournal& run, LineCheck& check);
void check_predictions(const CheckedJournal& run, LineCheck& check);
void check_observations(const CheckedJournal& run, LineCheck& check);
void check_rank_times(const CheckedJournal& run, LineCheck& check);
void check_rank_ends(const CheckedJournal& run, LineCheck& check);

// This one holds what is said of single components of the model (component_checks.cpp).
void check_components(const CheckedJournal& run, LineCheck& check);

}  // namespace heteroperf
