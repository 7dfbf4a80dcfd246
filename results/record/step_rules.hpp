#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "results/record/ruleset.hpp"

namespace heteroperf {

/// Rules that look at the steps of a run, one predicate each: what is against the rule, or nothing.
std::optional<Finding> clock_backwards(const Journal& journal, const RunSummary& summary);
std::optional<Finding> clock_jump(const Journal& journal, const RunSummary& summary);
std::optional<Finding> step_order(const Journal& journal, const RunSummary& summary);
std::optional<Finding> non_finite_loss(const Journal& journal, const RunSummary& summary);
std::optional<Finding> no_steps(const Journal& journal, const RunSummary& summary);
std::optional<Finding> few_steps(const Journal& journal, const RunSummary& summary);

/// "group 0", "group 0 trial 3".
std::string training_name(std::int32_t group, std::optional<std::uint64_t> trial);

}  // namespace heteroperf
