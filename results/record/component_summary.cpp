// Tells the components of a model apart: vision and text of a vision-language model, say. What a
// component has to compute follows from the graph. What was computed again, how long that took and
// what crossed the *borders* between components is summed up over the lines of the ranks, and
// divided by their steps.
//
// Bytes at a border are those that the plan says it sends, the least that any way to send could do
// with (results/README.md), and those that the ranks have counted as they sent them.
#include "results/record/component_summary.hpp"

#include <algorithm>
#include <map>

#include "results/record/graph_book.hpp"

namespace heteroperf {
namespace {

/// The lines of all ranks added up, by component.
struct RankSums {
  std::uint64_t first_step = 0, steps = 0;
  std::map<std::string, ComponentTime> components;
  double compute_s = 0;  ///< all components
};

/// Nothing until every rank has reported, or where there were no steps.
std::optional<RankSums> sums_of_ranks(const Journal& journal) {
  const auto times = journal.all<RankTimeEvent>();
  const auto* scale = journal.last<ScaleEvent>();
  const std::size_t ranks = scale == nullptr ? 0 : scale->ranks;
  if (times.empty() || times.size() != ranks || times.front()->steps == 0) return std::nullopt;
  RankSums sums{times.front()->first_step, times.front()->steps, {}, 0};
  for (const RankTimeEvent* time : times) {
    for (const ComponentTime& part : time->components) {
      ComponentTime& sum =
          sums.components.try_emplace(part.component, ComponentTime{part.component, 0.0, {}, {}, 0})
              .first->second;
      // One rank that cannot tell leaves the whole time unknown.
      sum.compute_s = sum.compute_s && part.compute_s
                          ? std::optional(*sum.compute_s + *part.compute_s)
                          : std::nullopt;
      sum.strict += part.strict;
      sum.recompute += part.recompute;
      sum.border_bytes += part.border_bytes;
      sums.compute_s += part.compute_s.value_or(0);
    }
  }
  return sums;
}

bool all_tell_time(const RankSums& sums) {
  return std::ranges::all_of(sums.components,
                             [](const auto& part) { return part.second.compute_s.has_value(); });
}

/// Adds what the ranks have reported.
void add_sums(const Journal& journal, const RankSums& sums, ComponentSummary& summary) {
  const auto found = sums.components.find(summary.counts.name);
  if (found == sums.components.end()) return;
  const ComponentTime& sum = found->second;
  summary.recompute = sum.recompute / sums.steps;
  if (all_tell_time(sums) && sums.compute_s > 0) {
    summary.time_fraction = *sum.compute_s / sums.compute_s;
  }
  BorderSummary border = planned_border(journal, summary.counts.name, sums.first_step, sums.steps);
  border.planned /= sums.steps;
  border.least /= sums.steps;
  border.measured = sum.border_bytes / sums.steps;
  summary.border = border;
}

}  // namespace

std::optional<std::uint64_t> images_of_steps(const Journal& journal, std::uint64_t first_step,
                                             std::uint64_t steps) {
  std::optional<std::uint64_t> sum;
  for (const StepEvent* step : journal.all<StepEvent>()) {
    if (!step->images || step->n < first_step || step->n - first_step >= steps) continue;
    sum = sum.value_or(0) + *step->images;
  }
  return sum;
}

BorderSummary planned_border(const Journal& journal, const std::string& component,
                             std::uint64_t first_step, std::uint64_t steps) {
  BorderSummary sum;
  const PlannedBorder* in_force = nullptr;
  std::uint64_t from = first_step;
  const auto take_until = [&](std::uint64_t step) {
    const std::uint64_t until = std::clamp(step, from, first_step + steps);
    if (in_force != nullptr) {
      sum.planned += in_force->planned_bytes * (until - from);
      sum.least += in_force->least_bytes * (until - from);
    }
    from = until;
  };
  const auto change = [&](const std::vector<PlannedBorder>& borders) {
    const auto found = std::ranges::find(borders, component, &PlannedBorder::component);
    in_force = found == borders.end() ? nullptr : &*found;
  };
  if (first_step + steps < first_step) return sum;  // no honest line's
  if (const auto* plan = journal.last<PlanEvent>()) change(plan->borders);
  for (const AdaptEvent* look : journal.all<AdaptEvent>()) {
    if (look->decision != AdaptDecision::new_plan) continue;
    take_until(look->n);
    change(look->borders);
  }
  take_until(first_step + steps);
  return sum;
}

// The plan's line names the components, so that a graph is read only where there are several.
std::vector<ComponentSummary> summarize_components(const Journal& journal) {
  std::vector<ComponentSummary> summaries;
  const auto* plan = journal.last<PlanEvent>();
  const auto* workload = journal.first<WorkloadEvent>();
  if (plan == nullptr || plan->borders.empty() || workload == nullptr) return summaries;
  const GraphBook graphs(journal);
  const ModelGraph* graph = graphs.of(std::nullopt);
  const std::uint64_t samples = workload->samples_per_step.value_or(0);
  // Counts that nobody can have are not made.
  const bool countable =
      graphs.count(std::nullopt, samples, GraphBook::Pass::strict_train).has_value();
  if (graph == nullptr || !countable) return summaries;
  const auto sums = sums_of_ranks(journal);
  BatchExtent step(samples);
  const auto images = sums ? images_of_steps(journal, sums->first_step, sums->steps) : std::nullopt;
  if (images) step = extent_with_items(*graph, samples, *images / sums->steps);
  for (ComponentCounts& counts : by_component(*graph, count_graph(*graph, step))) {
    ComponentSummary& summary = summaries.emplace_back();
    summary.counts = std::move(counts);
    if (sums) add_sums(journal, *sums, summary);
  }
  return summaries;
}

}  // namespace heteroperf
