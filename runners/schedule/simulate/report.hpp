#pragma once

#include <string>
#include <vector>

#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

/// The shares of a rank's time between 0 and the makespan. The *bubble* is the idle part.
struct RankTimes {
  double busy = 0;           ///< compute
  double idle = 0;           ///< makespan − busy = the sum of what follows
  double warm_up = 0;        ///< before its first compute
  double dependency = 0;     ///< waiting for another rank's compute
  double communication = 0;  ///< waiting for messages that are under way
  double imbalance = 0;      ///< after its last compute
  double span = 0;           ///< last end − first start
};

struct PathStep {
  int rank = 0, index = 0;
  TimeSpan span;
};

/// The figures by which schedules are compared. A bubble rate is 1 − Σ busy / (ranks · T), where T
/// is the makespan or the longest span.
struct ScheduleReport {
  double makespan = 0;      ///< last end of compute
  double longest_span = 0;  ///< the longest of the ranks' spans
  double bubble_rate_makespan = 0, bubble_rate_span = 0;
  double lower_bound = 0;
  std::vector<RankTimes> ranks;
  std::vector<double> peak_activations, peak_memory;  ///< [rank]; see MemoryPeaks
  std::vector<PathStep> critical_path;                ///< first to last
};
ScheduleReport report(const Schedule& schedule, const Timeline& timeline);

/// A time that no order of these segments on their ranks can end before. It is the largest of the
/// longest path of one micro-batch and, over ranks and times, (time + the work there of all passes
/// that cannot start before it).
double lower_bound(const PipelineGraph& graph);

}  // namespace heteroperf
