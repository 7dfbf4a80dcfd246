// The checks of a journal's lines, one row of `verify` each. Every check holds some lines against
// others: samples against the plan, operations against the model's graph, trials against their
// evaluations. All of it follows from the journal alone, so that a stranger's run can be checked
// without running it again. The table below names each check, tells in which words it counts what
// it held, and gives the rows their order. A check that held nothing leaves no row, as that of
// trials does for a fixed model. The checks of graphs and operation counts stand here; the others
// have files of their own.
//
// A CheckedJournal holds what the checks share: the journal, the documents of its opening lines
// (read once, as an outline), its model graphs, and the three lines that most rules refer to. A run
// can be killed at any moment, so a journal may end after any line and each of these may be absent;
// a rule that needs an absent one holds nothing.
#include "results/journal_checks/journal_checks.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "results/journal_checks/checked_journal.hpp"

namespace heteroperf {
namespace {

/// Names the expected count in a message; without its graph no count can be made.
std::string counted(const std::optional<Ops>& ops) {
  return ops ? ops->to_string() : "operations of a graph that the journal holds";
}

/// Passes every graph whose text has the hash under which its line names it. A problem's text names
/// the line of the graph itself.
void check_graphs(const CheckedJournal& run, LineCheck& check) {
  for (std::size_t i = 0; i < run.graphs.size(); ++i) check.pass();
  for (const std::string& problem : run.graphs.problems()) {
    check.equal("graphs", "with their hashes", problem);
  }
}

/// Holds the operations that a line claims to those that its graph has for its samples. `strict`
/// counts one pass: that of a training step, or the forward pass of an evaluation. Both sides are
/// whole numbers, so they must be equal.
template <class E, GraphBook::Pass pass>
void check_operations(const CheckedJournal& run, LineCheck& check) {
  check.each(run.journal, [&](const E& event) {
    const auto expected = run.graphs.count(event.trial, event.samples, pass, event.images);
    if (expected == event.ops_strict) return check.pass();
    check.hold(false, "{}", "{1}", counted(expected), event.ops_strict.to_string());
  });
}

/// A trial's line tells the steps and the operations of the trial so far. They are the sums over
/// those of its step lines that stand before it, in whatever group it trained.
void check_trial_totals(const CheckedJournal& run, LineCheck& check) {
  std::map<std::uint64_t, std::pair<std::uint64_t, Ops>> sums;
  const auto text = [](std::uint64_t steps, Ops ops) {
    return fmt::format("{} steps, {} operations", steps, ops.to_string());
  };
  const auto add = [&](const StepEvent& step) {
    if (!step.trial) return;
    ++sums[*step.trial].first;
    sums[*step.trial].second += step.ops_strict;
  };
  check.each(run.journal, add, [&](const TrialEvent& trial) {
    const auto& [steps, ops] = sums[trial.id];
    check.equal("totals", text(steps, ops), text(trial.steps, trial.ops));
  });
}

/// A row of `verify`: its name, the noun of its count, and the function that holds the lines.
struct JournalCheck {
  const char* name;
  const char* counts;
  void (*hold)(const CheckedJournal& run, LineCheck& check);
};

constexpr std::array journal_check_table{
    JournalCheck{"opening", "opening lines", check_opening},
    JournalCheck{"request", "settings", check_request},
    JournalCheck{"plan", "facts of the plan", check_plan_line},
    JournalCheck{"devices", "facts of the devices", check_devices},
    JournalCheck{"hosts", "facts of the hosts", check_hosts},
    JournalCheck{"model", "facts of the model", check_model},
    JournalCheck{"data", "facts of the data", check_data_line},
    JournalCheck{"graphs", "graphs with their hashes", check_graphs},
    JournalCheck{"rank_plans", "facts of the ranks' plans", check_rank_plans},
    JournalCheck{"predictions", "predictions", check_predictions},
    JournalCheck{"phases", "phases", check_phases},
    JournalCheck{"step_samples", "steps", check_step_samples},
    JournalCheck{"step_tokens", "steps", check_step_tokens},
    JournalCheck{"step_operations", "steps",
                 check_operations<StepEvent, GraphBook::Pass::strict_train>},
    JournalCheck{"looks", "looks", check_looks},
    JournalCheck{"evaluations", "facts of the evaluations", check_evaluations},
    JournalCheck{"evaluation_operations", "evaluations",
                 check_operations<EvalEvent, GraphBook::Pass::strict_evaluation>},
    JournalCheck{"trial_lines", "facts of the trials", check_trial_lines},
    JournalCheck{"trial_totals", "trial lines", check_trial_totals},
    JournalCheck{"trial_quality", "trial lines", check_trial_quality},
    JournalCheck{"best_trial", "final evaluations", check_best_trial},
    JournalCheck{"search", "facts of the search", check_search_line},
    JournalCheck{"observations", "facts of the observed steps", check_observations},
    JournalCheck{"rank_times", "facts of the ranks' times", check_rank_times},
    JournalCheck{"components", "facts of the components", check_components},
    JournalCheck{"rank_ends", "facts of the ranks", check_rank_ends},
    JournalCheck{"adaptations", "facts of the looks at the plan", check_adaptations},
    JournalCheck{"checkpoint_lines", "facts of the checkpoints", check_checkpoint_lines},
    JournalCheck{"ending", "facts of the end", check_ending},
};

}  // namespace

CheckedJournal::CheckedJournal(const Journal& checked)
    : journal(checked),
      outline(read_run_outline(checked)),
      graphs(checked),
      start(first<StartEvent>()),
      scale(first<ScaleEvent>()),
      workload(first<WorkloadEvent>()) {
  for (const AdaptEvent* look : journal.all<AdaptEvent>()) {
    if (look->plan.text.empty()) continue;
    try {
      later_plans.push_back({look->n, read_plan_outline(look->plan.text)});
    } catch (const UserError&) {
      return;  // check_adaptations() tells it
    }
  }
}

std::size_t CheckedJournal::plan_number(std::uint64_t step) const {
  return std::ranges::count_if(later_plans,
                               [&](const LaterPlan& plan) { return plan.first_step <= step; });
}

bool CheckedJournal::is_complete() const {
  const auto* stop = journal.last<StopEvent>();
  return stop != nullptr && stop->status == RunStatus::complete;
}

const ModelGraph* CheckedJournal::any_model() const {
  // All trials of a search take the same samples, so the first one stands for all of them.
  if (!is_search()) return model(std::nullopt);
  const auto trial = first<TrialEvent>();
  return trial ? graphs.find(trial->graph_hash) : nullptr;
}

std::optional<std::string> CheckedJournal::device_class(std::int32_t rank) const {
  if (!outline.plan || !outline.asked || rank < 0) return std::nullopt;
  // Only a cluster file defines classes. Without one, and in a search, a rank is of the device that
  // it is bound to.
  if (outline.plan->of_search || outline.asked->cluster_file.empty()) {
    const std::size_t place = rank;
    return place < outline.homes.size() ? std::optional(outline.homes[place].device) : std::nullopt;
  }
  const OutlinedReplica* replica = outline.plan->replica_of(rank);
  if (replica == nullptr || replica->device_class.empty()) return std::nullopt;
  return replica->device_class;
}

bool is_group(const CheckedJournal& run, std::int32_t group) {
  return run.scale && group >= 0 && group < run.scale->groups;
}

std::uint64_t tokens_of_sample(const ModelGraph& graph) {
  const SampleSpec sample = sample_of(graph);
  return sample.kind == SampleKind::tokens ? static_cast<std::uint64_t>(sample.length) : 0;
}

std::uint64_t answers_of_sample(const ModelGraph& graph) {
  return std::max<std::uint64_t>(1, tokens_of_sample(graph));
}

WorkloadFamily family_of(SampleKind samples) {
  using enum WorkloadFamily;
  constexpr std::array families{classifier,        language_model,
                                contrastive_model, vision_language_model,
                                matching_model,    language_model};
  static_assert(families.size() == value_names(SampleKind()).size());
  return families[static_cast<std::size_t>(samples)];
}

std::vector<VerifyCheck> check_journal_lines(const Journal& journal) {
  // One object serves all checks, so documents are parsed, and operations per sample counted, once.
  const CheckedJournal run(journal);
  std::vector<VerifyCheck> checks;
  for (const JournalCheck& row : journal_check_table) {
    LineCheck check(row.name, row.counts);
    row.hold(run, check);
    if (check.count() > 0) checks.push_back(check.result());
  }
  return checks;
}

}  // namespace heteroperf
