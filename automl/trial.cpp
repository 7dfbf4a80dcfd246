#include "automl/trial.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "metrics/error.hpp"
#include "workloads/graph_counts.hpp"

namespace heteroperf {
namespace {

struct StateName {
  TrialState state;
  const char* name;
};
constexpr std::array<StateName, 5> state_names{{{TrialState::completed, "completed"},
                                                {TrialState::stopped, "stopped"},
                                                {TrialState::diverged, "diverged"},
                                                {TrialState::failed, "failed"},
                                                {TrialState::truncated, "truncated"}}};

}  // namespace

const char* to_string(TrialState state) {
  for (const StateName& row : state_names) {
    if (row.state == state) return row.name;
  }
  HETEROPERF_EXPECT(false);
  return "";
}

TrialState parse_trial_state(const std::string& name) {
  std::vector<std::string> names;
  for (const StateName& row : state_names) {
    if (row.name == name) return row.state;
    names.emplace_back(row.name);
  }
  const std::string near = nearest_name(name, names);
  throw UserError(fmt::format("unknown trial state '{}'", name),
                  fmt::format("one of {}", fmt::join(names, ", ")),
                  near.empty() ? "" : fmt::format("Did you mean '{}'?", near));
}

Ops training_ops_per_sample(const ModelGraph& graph) { return strict_train_ops(graph, 1); }

Ops ops_per_step(const Trial& trial, std::uint32_t ranks) {
  return strict_train_ops(trial.graph, static_cast<std::uint64_t>(trial.hyper.batch)) * ranks;
}

}  // namespace heteroperf
