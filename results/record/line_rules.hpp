#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

/// These rules look at every host of a run, one predicate each: what is against
/// the rule, naming the hosts, or nothing. What a host does not tell is against none.
Verdict other_load(const Journal& journal, const RunSummary& summary);
Verdict throttled(const Journal& journal, const RunSummary& summary);

/// These look at its steps.
Verdict clock_backwards(const Journal& journal, const RunSummary& summary);
Verdict clock_jump(const Journal& journal, const RunSummary& summary);
Verdict step_order(const Journal& journal, const RunSummary& summary);
Verdict non_finite_loss(const Journal& journal, const RunSummary& summary);
Verdict no_steps(const Journal& journal, const RunSummary& summary);
Verdict few_steps(const Journal& journal, const RunSummary& summary);

/// "group 0", "group 0 trial 3".
std::string training_name(std::int32_t group, std::optional<std::uint64_t> trial);

}  // namespace heteroperf
