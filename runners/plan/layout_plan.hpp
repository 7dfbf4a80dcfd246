#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runners/plan/plan.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// The degrees of a component (a branch of the graph) and the ranks that it runs on. Ranks are
/// tensor × context × data × pipeline, tensor-parallel neighbours first.
struct ComponentLayout {
  std::string component;
  int tensor = 1, context = 1, data = 1, pipeline = 1;
  int first_rank = 0;
  std::optional<int> last_rank = {};  ///< where it was named
  std::int64_t ranks() const { return std::int64_t{tensor} * context * data * pipeline; }
};

/// Layouts of the components of a model.
struct Layouts : std::vector<ComponentLayout> {
  /// The ranks that they name or need: one more than the largest.
  int ranks() const;
  /// The replicas of the component that has the most.
  int most_replicas() const;
};

/// Reads `COMPONENT=AXES[@FIRST[-LAST]]`, as "vision=tp2,dp2@0-3", one after another with spaces
/// between. Degrees that are not named are 1; without ranks a component begins on rank 0. Throws
/// UserError with everything wrong.
Layouts parse_layouts(const std::string& text);

/// `--layout`, with what the stages of all components have in common.
struct LayoutPlanRequest {
  Layouts layouts;
  std::int64_t micro_batch = 1;  ///< samples, dealt to the replicas of each component
  int micro_batches = 1;         ///< per step
  std::string schedule = "auto";
  Recomputation recomputation = Recomputation::none;
  int zero_stage = 0;
  bool sequence_parallel = false;
};

/// The plan in which every component has its own layout. Components share the ranks that they have
/// in common in turn; others run side by side. The samples of a micro-batch are dealt as evenly as
/// they go, the first replicas take one more. Throws UserError with everything wrong: unknown,
/// missing and repeated components, ranks that do not fit the degrees, more replicas than samples,
/// too many stages.
Plan layout_plan(const ModelGraph& graph, const LayoutPlanRequest& request);

}  // namespace heteroperf
