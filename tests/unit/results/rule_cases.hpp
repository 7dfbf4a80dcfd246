#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "results/record/ruleset.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {

/// A change of the sample run that trips a rule, and one close to it that does not.
struct RuleCase {
  const char* rule;
  Severity severity;
  std::function<void(SampleRun&)> trips, passes;
};

/// Of the run as a whole, its peak, plan and devices.
std::vector<RuleCase> run_rule_cases();
/// Of steps, their times, operations and checksums.
std::vector<RuleCase> step_rule_cases();
/// Of what the run reached.
std::vector<RuleCase> quality_rule_cases();
/// Of the hosts and GPUs that it ran on.
std::vector<RuleCase> host_rule_cases();
/// All of these.
const std::vector<RuleCase>& rule_cases();

Validity judged(const SampleRun& run);
std::set<std::string> rules_of(const Validity& validity);

}  // namespace heteroperf
