#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "runners/plan/rivals/sailor/sailor_pipelines.hpp"
#include "runners/plan/rivals/sailor/stage_rules.hpp"
#include "runners/plan/rivals/sailor/whole_packing.hpp"

namespace heteroperf {

struct ScoredSailorPlan {
  SailorPlan plan;
  double step_time_s = 0;
};

/// Searches the `sailor+` plans whose stages begin at given layers: how many pipelines of which
/// kind, with which shares, make a step short.
class SailorCuts {
 public:
  /// `tables` outlive it.
  SailorCuts(const SailorTables& tables, std::vector<int> bounds, const SailorDevices& devices);
  SailorCuts(const SailorCuts&) = delete;
  SailorCuts& operator=(const SailorCuts&) = delete;

  /// Seconds of the best step if pipelines could be used in fractions; `below` where it is no
  /// shorter than that.
  double fractional_s(double below);
  /// The best plan found that takes less than `below`.
  std::optional<ScoredSailorPlan> whole(double below);

  std::uint64_t candidates() const { return candidates_; }

 private:
  /// One rule per stage, and the pipelines that keep them.
  struct Frame {
    std::vector<StageRule> rules;
    std::vector<const SailorPipeline*> pipelines;
    double update_s = 0;  ///< at least
  };

  /// Lists the frames: combinations of the stages' rules, each with the pipelines that keep them.
  void make_frames();
  void add_combinations(double reduction_s, int width, std::set<std::vector<StageRule>>& known);
  double reduction_s(const Frame& frame, int width) const;
  /// Numbers of pipelines that are tried, ascending.
  std::vector<int> widths() const;
  PackingProblem packing(const Frame& frame, int width, double seconds) const;
  /// The seconds of a step that are left for pipelines, without sums and updates; may be below 0.
  double pipeline_s(const Frame& frame, int width, double step_s) const;
  /// True when fractions of the frame's pipelines do the whole batch within the step.
  bool enough(const Frame& frame, int width, double step_s);
  /// A plan of whole pipelines for about that step; its own time may be a little longer.
  std::optional<ScoredSailorPlan> plan(const Frame& frame, int width, double step_s);
  std::optional<SailorPlan> shared(const Frame& frame, const std::vector<int>& counts,
                                   double seconds) const;

  const SailorTables& tables_;
  std::vector<int> bounds_;
  SailorDevices devices_;
  StageRules rules_;
  std::vector<SailorPipeline> pipelines_;
  std::vector<Frame> frames_;
  std::uint64_t candidates_ = 0;
};

}  // namespace heteroperf
