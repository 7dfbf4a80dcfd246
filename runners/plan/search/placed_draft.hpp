#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runners/plan/search/problem/graph_problem.hpp"
#include "runners/plan/search/problem/layer_sums.hpp"
#include "runners/schedule/ir/pipeline_graph.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// Devices that run one program: some of a pool that follow each other, or those of a chain's
/// position, whose replicas are given.
struct DraftPosition {
  int pool = 0, first = 0, devices = 0;
  std::vector<ReplicaGroup> groups = {};
  IdVector<ReplicaId, StageReplica> replicas = {};
};

/// A way to divide the devices.
struct Division {
  std::vector<DraftPosition> positions;
  std::int64_t samples = 0;          ///< a micro-batch's, where the replicas are given
  std::vector<RankId> devices = {};  ///< Plan::devices
};

/// A stage of a draft: layers of one component on a position, with its replicas there.
struct PlacedStage {
  LayerSums::Range layers;
  std::size_t position = 0;
  std::vector<ReplicaGroup> groups;
};

/// A plan in numbers.
struct PlacedDraft {
  std::string placement;
  Division division;
  std::vector<PlacedStage> stages;
  std::int64_t samples = 1;                       ///< a micro-batch's
  std::vector<Recomputation> recomputation = {};  ///< [stage]
  std::vector<std::string> schedules = {};        ///< that run it
  double step_s = 0;

  /// The replicas of a stage share their optimizer states: that saves memory and costs nothing.
  int zero_stage() const {
    return std::ranges::any_of(stages, [](const PlacedStage& stage) {
      return stage.groups.size() > 1 || stage.groups.front().replicas > 1;
    });
  }
};

/// The times and the memory of drafts that place components beside each other, from the problem's
/// tables.
class PlacedDraftTables {
 public:
  /// The problem outlives it.
  explicit PlacedDraftTables(const GraphProblem& problem);

  const LayerSums& sums() const { return sums_; }
  /// The slowest replica's time for a micro-batch, pass by pass.
  LayerSums::Work work_of(const std::vector<ReplicaGroup>& groups, LayerSums::Range layers,
                          Recomputation recomputation = Recomputation::none) const;
  /// The seconds of the sum of a range's gradients over all replicas, and of the optimizer.
  double update_s(const std::vector<ReplicaGroup>& groups, LayerSums::Range layers) const;
  /// The same of the position that takes longest.
  double last_update_s(const PlacedDraft& draft) const;

  /// A draft's pipeline whose activations are shares of the room of its positions, and the most
  /// bytes that a device lacks for one micro-batch (for all of a step, where the loss is over it).
  struct Pipeline {
    PipelineGraph graph;
    double lacking = 0;
  };
  Pipeline pipeline_of(const PlacedDraft& draft) const;
  /// Raises the recomputation of stages until their positions have the memory for an order, those
  /// first that save most for the time that they take.
  void recompute_for(Schedule order, PlacedDraft& draft) const;

 private:
  /// A tensor that goes from one layer to a later one.
  struct LayerEdge {
    int from = 0, to = 0;
    double bytes = 0;  // per sample
    bool gradient = false;
  };

  void find_edges();
  PipelineGraph timed(const PlacedDraft& draft) const;
  void add_shares(const PlacedDraft& draft, const std::vector<std::size_t>& stages,
                  std::size_t group, Pipeline& pipeline) const;
  double link_s(int from, int to, Bytes bytes) const;
  double message_s(const std::vector<ReplicaGroup>& from, const std::vector<ReplicaGroup>& to,
                   double bytes) const;

  const GraphProblem& problem_;
  const PlanningProblem& tables_;
  LayerSums sums_;
  std::vector<LayerEdge> edges_;
  bool whole_step_ = false;  // the loss is over all micro-batches
};

}  // namespace heteroperf
