#include "tests/unit/results/rule_cases.hpp"

#include "results/record/run_summary.hpp"

namespace heteroperf {

const std::vector<RuleCase>& rule_cases() {
  static const std::vector<RuleCase> all = [] {
    std::vector<RuleCase> cases;
    for (const auto part : {run_rule_cases, step_rule_cases, quality_rule_cases, host_rule_cases}) {
      for (RuleCase& one : part()) cases.push_back(std::move(one));
    }
    return cases;
  }();
  return all;
}

Validity judged(const SampleRun& run) {
  const Journal journal = run.journal();
  return judge(journal, summarize(journal));
}

std::set<std::string> rules_of(const Validity& validity) {
  std::set<std::string> rules;
  for (const Reason& reason : validity.reasons) rules.insert(reason.rule);
  return rules;
}

}  // namespace heteroperf
