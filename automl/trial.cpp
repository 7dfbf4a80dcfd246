#include "automl/trial.hpp"

#include "metrics/base/name_table.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

constexpr Named<TrialState> states[] = {{TrialState::completed, "completed"},
                                        {TrialState::stopped, "stopped"},
                                        {TrialState::diverged, "diverged"},
                                        {TrialState::failed, "failed"},
                                        {TrialState::truncated, "truncated"}};

}  // namespace

const char* to_string(TrialState state) { return name_of(states, state); }

TrialState parse_trial_state(const std::string& name) {
  return parse_name(states, "trial state", name);
}
Ops ops_per_step(const Trial& trial, std::uint32_t ranks) {
  return strict_train_ops(trial.graph, static_cast<std::uint64_t>(trial.hyper.batch)) * ranks;
}

}  // namespace heteroperf
