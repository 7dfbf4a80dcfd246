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
  explicit PipelineBeam(const StageFiller& filler) : filler_(filler) {}

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
  const StageFiller& filler_;
  std::uint64_t tried_ = 0;
};

}  // namespace heteroperf
