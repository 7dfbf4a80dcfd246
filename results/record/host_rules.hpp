#pragma once

#include <optional>
#include <vector>

#include "results/record/ruleset.hpp"

namespace heteroperf {

/// Others may have this share of a run's CPUs.
inline constexpr double largest_other_load = 0.1;

/// The load that every host of a run told of itself, by its first rank; of several lines of one
/// host the last.
std::vector<const HostLoadEvent*> host_loads(const Journal& journal);

/// The state of GPUs that ranks told of, by host and bus id; of several lines of one GPU the last.
std::vector<const GpuSlowdownEvent*> gpu_slowdowns(const Journal& journal);

/// Rules that look at every host of a run, one predicate each: what is against the rule, naming the
/// hosts, or nothing. What a host does not tell is against none.
std::optional<Finding> other_load(const Journal& journal, const RunSummary& summary);
std::optional<Finding> throttled(const Journal& journal, const RunSummary& summary);

}  // namespace heteroperf
