// These checks hold what a run says of the components of its model: the lines of a plan that name
// what crosses the borders between them, and each rank's work for each of them. A rank's parts add
// up to the rank, the ranks' parts to the component as the graph has it, and the bytes that the
// ranks counted while they sent are, to the byte, those that the plan foretold. `verify` also
// computes the plan's own bytes again, where a plan can be made ready (suite/verification).
#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "results/journal_checks/checked_journal.hpp"
#include "results/record/component_summary.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

constexpr double compute_rounding = 0.01;  // of the rank's computing: a device has its own clock
constexpr std::uint64_t most_steps = std::uint64_t{1} << 24;  // so that operations of all fit

/// One entry per component, in the order of the graph.
void hold_components(const std::vector<std::string>& names, const auto& entries, LineCheck& check) {
  std::vector<std::string> named;
  for (const auto& entry : entries) named.push_back(entry.component);
  check.equal("components", fmt::format("{}", fmt::join(names, ", ")),
              fmt::format("{}", fmt::join(named, ", ")));
}

void hold_borders(const std::vector<std::string>& names, const std::vector<PlannedBorder>& borders,
                  LineCheck& check) {
  hold_components(names, borders, check);
  for (const PlannedBorder& border : borders) {
    check.hold(border.least_bytes <= border.planned_bytes,
               "{}: at most the {} bytes that are planned", "{0}: {2} bytes at least",
               border.component, border.planned_bytes, border.least_bytes);
  }
}

/// The parts of a rank's line add up to it. A rank also computes outside its passes.
void hold_rank_parts(const RankTimeEvent& time, LineCheck& check) {
  Ops strict, recompute;
  double compute_s = 0;
  bool below_zero = false;
  for (const ComponentTime& part : time.components) {
    strict += part.strict;
    recompute += part.recompute;
    compute_s += part.compute_s.value_or(0);
    below_zero = below_zero || part.compute_s.value_or(0) < 0;
  }
  const auto text = [](const Ops& once, const Ops& again) {
    return fmt::format("{} strict, {} recomputed", once.to_string(), again.to_string());
  };
  check.equal("operations of all components", text(time.strict, time.recompute),
              text(strict, recompute));
  check.hold(!below_zero && compute_s <= (1 + compute_rounding) * time.split.compute_s,
             "at most {} s of computing for all components", "{1} s", time.split.compute_s,
             compute_s);
}

/// The work of all ranks together for a component.
struct ComponentTotal {
  Ops strict;
  std::uint64_t border_bytes = 0;
};

/// The ranks' parts of a component are all of it, in every measured step.
void hold_totals(const CheckedJournal& run, const ModelGraph& graph,
                 const std::map<std::string, ComponentTotal>& totals, const RankTimeEvent& first,
                 LineCheck& check) {
  const std::uint64_t samples = run.workload->samples_per_step.value_or(0);
  const auto all = run.graphs.count(std::nullopt, samples, GraphBook::Pass::strict_train);
  // Ranks of a run that failed may have come to different steps.
  const auto* stop = run.journal.last<StopEvent>();
  if (stop == nullptr || stop->status == RunStatus::failed) return;
  if (!all || first.steps > most_steps) return;
  const auto images = images_of_steps(run.journal, first.first_step, first.steps);
  const GraphCounts of_graph =
      images ? count_graph(graph, extent_with_items(graph, samples * first.steps, *images))
             : count_graph(graph, samples);
  for (const ComponentCounts& counts : by_component(graph, of_graph)) {
    const auto found = totals.find(counts.name);
    if (found == totals.end()) continue;  // hold_components() tells it
    const Ops strict = images ? counts.strict.train() : counts.strict.train() * first.steps;
    check.equal("strict operations of " + counts.name, strict.to_string(),
                found->second.strict.to_string());
    const BorderSummary border =
        planned_border(run.journal, counts.name, first.first_step, first.steps);
    if (images) {
      // The plan's line is about samples with the most images.
      check.hold(found->second.border_bytes <= border.planned, "at most {} bytes from {}", "{2}",
                 border.planned, counts.name, found->second.border_bytes);
      continue;
    }
    check.equal("bytes sent from " + counts.name, border.planned, found->second.border_bytes);
  }
}

}  // namespace

void check_components(const CheckedJournal& run, LineCheck& check) {
  const ModelGraph* graph = run.is_search() ? nullptr : run.model(std::nullopt);
  if (graph == nullptr || !run.outline.plan || !run.workload) return;
  std::vector<std::string> names = components_of(*graph);
  // A model of one component has nothing to tell apart.
  if (names.size() == 1) names.clear();
  std::map<std::string, ComponentTotal> totals;
  std::int64_t ranks = 0;
  const auto hold_plan = [&](const PlanEvent& plan) {
    if (!names.empty() || !plan.borders.empty()) hold_borders(names, plan.borders, check);
  };
  const auto hold_look = [&](const AdaptEvent& look) {
    const bool is_new = look.decision == AdaptDecision::new_plan && !names.empty();
    if (is_new || !look.borders.empty()) {
      hold_borders(is_new ? names : std::vector<std::string>(), look.borders, check);
    }
  };
  check.each(run.journal, hold_plan, hold_look, [&](const RankTimeEvent& time) {
    ++ranks;
    if (names.empty() && time.components.empty()) return;
    hold_components(names, time.components, check);
    hold_rank_parts(time, check);
    for (const ComponentTime& part : time.components) {
      totals[part.component].strict += part.strict;
      totals[part.component].border_bytes += part.border_bytes;
    }
  });
  const auto first = run.first<RankTimeEvent>();
  if (names.empty() || ranks == 0 || ranks != run.ranks()) return;
  check.at(first.line);
  hold_totals(run, *graph, totals, *first.event, check);
}

}  // namespace heteroperf
