#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/field_list.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/ops.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// A group of ranks that trains one trial at a time, numbered 0 … groups − 1.
using GroupId = Id<struct GroupTag>;

struct HyperParameters {
  double dropout = 0.0;        ///< probability, in every dropout node of the graph
  std::int64_t kernel = 3;     ///< size in convolutions that morphs have added (graph_rebuild.hpp)
  std::int64_t batch = 32;     ///< samples per rank and optimizer step
  double learning_rate = 0.1;  ///< peak of the recipe's schedule
  friend bool operator==(const HyperParameters&, const HyperParameters&) = default;
  HETEROPERF_FIELDS(dropout, kernel, batch, learning_rate);
};

/// A candidate and its budget.
struct Trial {
  std::uint64_t id = 0;
  std::optional<std::uint64_t> parent;  ///< absent where it was made from the initial architecture
  std::string morph;  ///< "wider layer1.0.conv1 64→128"; empty for the initial architecture
  ModelGraph graph;   ///< hyper-parameters are applied: what is counted is what runs
  HyperParameters hyper;
  std::uint64_t seed = 0;   ///< seeds weights, shuffling and dropout masks
  std::uint64_t steps = 0;  ///< the trial trains until this many optimizer steps since its start
  std::uint32_t rung = 0;   ///< the rung whose milestone `steps` is
  HETEROPERF_FIELDS(id, parent, morph, hyper, seed, steps, rung, graph);
};

enum class TrialState {
  completed,  ///< it reached the last rung
  stopped,    ///< it was not among the best of its rung
  diverged,   ///< its loss or quality became non-finite
  failed,     ///< it threw, or its group was lost
  truncated,  ///< the run's own budget ended first
};

constexpr std::array<const char*, 5> value_names(TrialState) {
  return {"completed", "stopped", "diverged", "failed", "truncated"};
}

/// The report of a group at the end of a segment.
struct TrialReport {
  std::uint64_t id = 0;
  double quality = 0.0;                                    ///< validation accuracy, 0 … 1
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< validation loss
  std::uint64_t steps = 0;                                 ///< steps done since the trial's start
  /// truncated: the run was stopped before the quality was known
  enum class Health { fine, diverged, failed, truncated } health = Health::fine;
  friend constexpr std::array<const char*, 4> value_names(Health) {
    return {"fine", "diverged", "failed", "truncated"};
  }
  std::string reason;  ///< words for whatever is not fine
  HETEROPERF_FIELDS(id, quality, loss, steps, health, reason);
};

/// The end of a trial.
struct TrialOutcome {
  std::uint64_t id = 0;
  TrialState state = TrialState::completed;
  double quality = 0.0;  ///< the last report's; 0 without a report
  double loss =
      std::numeric_limits<double>::quiet_NaN();  ///< the last report's; NaN without a report
  std::uint64_t steps = 0;
  Ops ops = {};             ///< strict operations trained by the whole group: steps × ops_per_step
  std::string reason = {};  ///< says why the trial is not completed
  /// The quality and the loss at each milestone that was reached, rung 0 first.
  struct Milestone {
    double quality = 0.0, loss = std::numeric_limits<double>::quiet_NaN();
    friend bool operator==(const Milestone&, const Milestone&) = default;
    HETEROPERF_FIELDS(quality, loss);
  };
  std::vector<Milestone> milestones = {};
  HETEROPERF_FIELDS(id, state, quality, loss, steps, ops, reason, milestones);
};

/// A trial of an earlier run. `outcome` is absent when that run ended before the trial did.
struct HistoryEntry {
  Trial trial;
  std::optional<TrialOutcome> outcome;
};

/// Counts the strict operations of one optimizer step of `trial` on a group of `ranks` ranks.
inline Ops ops_per_step(const Trial& trial, std::uint32_t ranks) {
  return strict_train_ops(trial.graph, static_cast<std::uint64_t>(trial.hyper.batch)) * ranks;
}

}  // namespace heteroperf
