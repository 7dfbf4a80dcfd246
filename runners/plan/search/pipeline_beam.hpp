#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "runners/plan/search/stage_filler.hpp"

namespace heteroperf {

/// Fills pipelines pool after pool, from the last stage to the first, by beam search.
///
/// A stage takes as many replicas of the pool at hand as a micro-batch needs, each with k samples
/// and as many layers as these allow; what the pool's last devices cannot take of a micro-batch
/// the next pool's do. So no two stages need the same number of devices, and few are left idle.
class PipelineBeam {
 public:
  /// The filler outlives it.
  explicit PipelineBeam(const StageFiller& filler);

  /// A pipeline that covers the model with every stage within `period_s`, of as few stages as the
  /// beam finds; `order`: the pools, that of the last stage first.
  std::optional<PipelineDraft> fill(const std::vector<int>& order, double period_s,
                                    const FillRules& rules);
  /// Down to the shortest period, to a part in 500, of those between the two: calls `visit` with
  /// the pipeline of every period that has one; shorter periods may take more stages. False where
  /// none has.
  bool tighten(const std::vector<int>& order, double least_s, double most_s, const FillRules& rules,
               const std::function<void(PipelineDraft&&)>& visit);

  /// Stages tried so far.
  std::uint64_t tried() const { return tried_; }

 private:
  struct Node {
    int parent = -1;
    int first = 0;     ///< layers before it are open
    int at = 0;        ///< pools of the order before it are used up
    int left = 0;      ///< devices of the pool at hand
    double worth = 0;  ///< rate of the free devices over the open work
    DraftStage stage = {};
  };
  /// Values that one fill shares.
  struct Task {
    const std::vector<int>& order;
    double period_s;
    const FillRules& rules;
    int in_flight = 1;
  };
  struct Reach {
    int first = 0;
    Recomputation recomputation = Recomputation::none;
  };
  Reach reach(const ReplicaGroup& group, int end, const Task& task) const;
  bool in_time(const ReplicaGroup& group, LayerSums::Range range, Recomputation recomputation,
               const Task& task) const;
  bool has_memory(const ReplicaGroup& group, LayerSums::Range range, Recomputation recomputation,
                  const Task& task) const;
  std::int64_t most_samples(ReplicaGroup group, LayerSums::Range range, Recomputation recomputation,
                            const Task& task) const;
  void extend(int parent, const Task& task);
  void add(int parent, const ReplicaGroup& group, const Task& task);
  bool add_others(Node& node, std::int64_t open, const Task& task) const;
  /// Tries the first stage with all devices that are free, also those that no equal stage uses.
  void finish_with_all(int parent, const Task& task);
  void push(Node&& node, const Task& task);
  /// Infinite for a node that has covered all layers.
  double worth(const Node& node, const Task& task) const;
  PipelineDraft draft(int last, const FillRules& rules) const;

  const StageFiller& filler_;
  const PlanningProblem& problem_;
  const LayerSums& sums_;
  std::vector<std::vector<double>> device_seconds_;  ///< [pool][layers before]: per sample
  std::vector<Node> nodes_;
  std::vector<int> next_;
  std::uint64_t tried_ = 0;
};

}  // namespace heteroperf
