#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "results/journal/journal.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {

/// Bytes that a step sends from one component to others, in the mean over the measured steps.
struct BorderSummary {
  std::uint64_t planned = 0, least = 0, measured = 0;
};

/// The work of a step for one component of the model.
struct ComponentSummary {
  ComponentCounts counts;               ///< one step's, from the graph
  std::optional<Ops> recompute;         ///< one step's, over the ranks
  std::optional<double> time_fraction;  ///< share of the ranks' computing in passes
  std::optional<BorderSummary> border;
};

/// By component, in the order of the graph. Empty for a model of one component, a search, and a
/// journal without the model's graph; figures that need all ranks are absent until each of them has
/// reported.
std::vector<ComponentSummary> summarize_components(const Journal& journal);

/// Sums up the images of so many steps from one on; nothing where samples have one each.
std::optional<std::uint64_t> images_of_steps(const Journal& journal, std::uint64_t first_step,
                                             std::uint64_t steps);

/// Sums what a component was planned to send in `steps` steps from `first_step` on, by the plans
/// that were in force.
BorderSummary planned_border(const Journal& journal, const std::string& component,
                             std::uint64_t first_step, std::uint64_t steps);

}  // namespace heteroperf
