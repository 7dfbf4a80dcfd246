// The simulated pipeline becomes the time of a step.
//
// The simulator knows passes and messages. After them a step sums gradients over replicas, updates
// the parameters, and agrees on loss and norm. A stage's sum starts when the last of its copies has
// reached its REDUCE_GRAD, for all replicas take part; a tied weight's when the last holder has.
// Sums of one position run one after the other, behind its computations where these still go on;
// only what ends after the last computation is *exposed* and makes the step longer.
#include "runners/plan/ready/ready_plan.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

/// When the computations of each position end, and when the gradients of each stage are all there:
/// as soon as the last of its copies reaches its reduction.
struct GradientEnds {
  std::vector<double> compute;  ///< [position]
  IdVector<StageId, double> ready;
};

StageId stage_of(SegmentId segment, const Plan& plan) {
  return StageId(segment.index() % plan.stages.size());
}

GradientEnds gradient_ends(const StagedGraph& staged, const Plan& plan, const Schedule& schedule,
                           const Timeline& timeline) {
  GradientEnds ends{std::vector<double>(schedule.programs.size(), 0),
                    IdVector<StageId, double>(plan.stages.size(), 0)};
  for (std::size_t q = 0; q < schedule.programs.size(); ++q) {
    for (std::size_t k = 0; k < schedule.programs[q].size(); ++k) {
      const Instruction& i = schedule.programs[q][k];
      const double end = timeline.spans[q][k].end;
      if (is_compute(i.op)) ends.compute[q] = std::max(ends.compute[q], end);
      if (i.op != Op::reduce_grad && i.op != Op::reduce_tied) continue;
      double& ready = ends.ready[stage_of(i.segment, plan)];
      ready = std::max({ready, end, ends.compute[q]});
    }
  }
  // A tied weight's gradients are all there when the last of its holders has them.
  for (const StagedGraph::Tied& tied : staged.tied) {
    double last = 0;
    for (const StageId stage : tied.stages) last = std::max(last, ends.ready[stage]);
    for (const StageId stage : tied.stages) ends.ready[stage] = last;
  }
  return ends;
}

}  // namespace

/// The sums of a position run one after the other in the order of its program, and so do the
/// updates of its stages behind them.
Prediction predict(const StagedGraph& staged, const Plan& plan, const StageTimes& times,
                   const Schedule& schedule, const Timeline& timeline) {
  Prediction result;
  result.pipeline = report(schedule, timeline);
  const GradientEnds ends = gradient_ends(staged, plan, schedule, timeline);
  double last = 0;
  for (std::size_t q = 0; q < schedule.programs.size(); ++q) {
    double free = 0, end = ends.compute[q], update_s = 0;
    for (const Instruction& i : schedule.programs[q]) {
      if (i.op != Op::reduce_grad) continue;
      const StageId stage = stage_of(i.segment, plan);
      if (times.reduction_s[stage] == 0) continue;
      free = std::max(free, ends.ready[stage]) + times.reduction_s[stage];
      end = std::max(end, free);
    }
    for (const SegmentId s : schedule.graph.segments.ids()) {
      if (schedule.graph.segments[s].rank != static_cast<int>(q)) continue;
      update_s += times.optimizer_s[stage_of(s, plan)];
    }
    result.reduction_exposed_s.push_back(end - ends.compute[q]);
    last = std::max(last, end + update_s);
  }
  result.step_time_s = last + times.agreement_s;
  if (result.step_time_s > 0) {
    result.throughput = static_cast<double>(plan.samples_per_step()) / result.step_time_s;
  }
  return result;
}

}  // namespace heteroperf
