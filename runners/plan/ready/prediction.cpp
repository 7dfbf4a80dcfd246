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

/// Ends of the sums over replicas, position by position.
class ReductionClock {
 public:
  ReductionClock(const StagedGraph& staged, const Plan& plan, const StageTimes& times,
                 const Schedule& schedule, const Timeline& timeline)
      : plan_(plan), times_(times), schedule_(schedule), timeline_(timeline) {
    compute_end_.resize(schedule.programs.size(), 0);
    ready_.resize(plan.stages.size(), 0);
    for (std::size_t q = 0; q < schedule.programs.size(); ++q) read_program(q);
    for (const StagedGraph::Tied& tied : staged.tied) wait_for_all(tied);
    end_ = compute_end_;
    for (std::size_t q = 0; q < schedule.programs.size(); ++q) run_sums(q);
  }

  double exposed(std::size_t position) const {
    return std::max(0.0, end_[position] - compute_end_[position]);
  }
  double end(std::size_t position) const {
    return std::max(end_[position], compute_end_[position]);
  }

 private:
  StageId stage_of(const Instruction& i) const {
    return StageId(i.segment.index() % plan_.stages.size());
  }

  /// The gradients of a stage are all there when the last of its copies reaches REDUCE_GRAD.
  void read_program(std::size_t q) {
    for (std::size_t k = 0; k < schedule_.programs[q].size(); ++k) {
      const Instruction& i = schedule_.programs[q][k];
      const double end = timeline_.spans[q][k].end;
      if (is_compute(i.op)) compute_end_[q] = std::max(compute_end_[q], end);
      if (i.op != Op::reduce_grad && i.op != Op::reduce_tied) continue;
      double& ready = ready_[stage_of(i)];
      ready = std::max({ready, end, compute_end_[q]});
    }
  }

  /// A tied weight's gradients are all there when the last of its holders has them.
  void wait_for_all(const StagedGraph::Tied& tied) {
    double last = 0;
    for (const StageId stage : tied.stages) last = std::max(last, ready_[stage]);
    for (const StageId stage : tied.stages) ready_[stage] = last;
  }

  /// One after the other, in the order of the program.
  void run_sums(std::size_t q) {
    double free = 0;
    for (const Instruction& i : schedule_.programs[q]) {
      if (i.op != Op::reduce_grad) continue;
      const StageId stage = stage_of(i);
      if (times_.reduction_s[stage] == 0) continue;
      free = std::max(free, ready_[stage]) + times_.reduction_s[stage];
      end_[q] = std::max(end_[q], free);
    }
  }

  const Plan& plan_;
  const StageTimes& times_;
  const Schedule& schedule_;
  const Timeline& timeline_;
  std::vector<double> compute_end_, end_;  ///< [position]
  IdVector<StageId, double> ready_;
};

/// The stages on a position update one after the other.
double optimizer_time(const Plan& plan, const StageTimes& times, const Schedule& schedule, int q) {
  double sum = 0;
  for (const SegmentId s : schedule.graph.segments.ids()) {
    if (schedule.graph.segments[s].rank != q) continue;
    sum += times.optimizer_s[StageId(s.index() % plan.stages.size())];
  }
  return sum;
}

}  // namespace

Prediction predict(const StagedGraph& staged, const Plan& plan, const StageTimes& times,
                   const Schedule& schedule, const Timeline& timeline) {
  Prediction result;
  result.pipeline = report(schedule, timeline);
  const ReductionClock reductions(staged, plan, times, schedule, timeline);
  double end = 0;
  for (std::size_t q = 0; q < schedule.programs.size(); ++q) {
    result.reduction_exposed_s.push_back(reductions.exposed(q));
    end = std::max(end,
                   reductions.end(q) + optimizer_time(plan, times, schedule, static_cast<int>(q)));
  }
  result.step_time_s = end + times.agreement_s;
  if (result.step_time_s > 0) {
    result.throughput = static_cast<double>(plan.samples_per_step()) / result.step_time_s;
  }
  return result;
}

}  // namespace heteroperf
