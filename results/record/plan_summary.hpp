#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/score.hpp"
#include "results/journal/journal.hpp"

namespace heteroperf {

/// Steps of a plan as predicted and as they were. Seconds are modelled ones where the devices are
/// emulated.
struct PredictionSummary {
  PredictionEvent predicted;
  std::optional<double> step_time_s;     ///< measured median
  std::optional<double> error_fraction;  ///< measured / predicted − 1
};

/// A look at the plan of a training that adapts, and the steps of the plan that it brought.
struct AdaptSummary {
  AdaptEvent look;
  std::uint64_t steps = 0;               ///< by the new plan
  std::optional<double> step_time_s;     ///< their median
  std::optional<double> error_fraction;  ///< measured / predicted − 1
};

/// All ranks of an emulated run together.
struct PacingSummary {
  double dilation = 1;
  std::uint64_t operations = 0, late = 0;
  double worst_lateness_s = 0;
  double late_fraction() const {
    return operations == 0 ? 0 : static_cast<double>(late) / static_cast<double>(operations);
  }
};

/// Where the time of some ranks went: seconds are means over them, operations sums.
struct RankTimeGroup {
  std::int32_t ranks = 0;
  std::uint64_t steps = 0;
  double wall_s = 0;
  StepSplit split;
  Ops strict, recompute;

  void add(const RankTimeEvent& time);
  /// The sum over all its ranks.
  double ops_per_second() const;
};

/// A rank's place, where the plan has told it, and its time and memory, where it has reported them.
struct RankUse {
  std::int32_t rank = 0;
  std::optional<RankPlanEvent> plan;
  std::optional<RankTimeEvent> time;
  std::optional<MemoryEvent> memory;
};
/// True for a training that changed its plan: sums over its steps are of several plans.
bool changes_plan(const Journal& journal);

/// Joins a journal's lines of single ranks, ascending; of several lines of a kind the last counts.
std::vector<RankUse> rank_uses(const Journal& journal);

/// A mix of device classes against each of them alone, in samples per second. Absent unless the mix
/// and every class have a number.
struct HeteroFigures {
  double mix = 0;
  double ideal_sum = 0;    ///< Σ of the classes alone
  double best_single = 0;  ///< by the best class alone
  std::string best_class;
  double hsr() const { return heterogeneous_speed_ratio(mix, ideal_sum).value_or(0); }
  double gain() const { return mix / best_single; }
};
/// A device class and what it reaches, in samples per second.
using ClassThroughput = std::pair<std::string, std::optional<double>>;
std::optional<HeteroFigures> hetero_figures(std::optional<double> mix,
                                            const std::vector<ClassThroughput>& alone);

struct HeteroSummary {
  std::optional<HeteroFigures> measured, planned;
};

/// The work of a plan's ranks beside the simulator's prediction.
struct PlanSummary {
  std::vector<RankUse> ranks;  ///< that have a plan or a time: none in a search
  /// 1 − Σ compute / Σ wall over all ranks, once they have reported.
  std::optional<double> bubble_rate;
  std::optional<PredictionSummary> prediction;
  std::optional<PacingSummary> pacing;
  std::optional<HeteroSummary> hetero;
  std::vector<AdaptSummary> looks;  ///< none where the training keeps its plan
  /// The measured step of the whole run; on modelled time (median step) where the devices are
  /// emulated.
  std::optional<double> samples_per_s;
};

/// `median_step_s` and `samples_per_s` as measured, in real seconds.
PlanSummary summarize_plan(const Journal& journal, std::optional<double> median_step_s,
                           std::optional<double> samples_per_s);

}  // namespace heteroperf
