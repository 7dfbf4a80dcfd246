// The exact clock of pipelines of one chunk, and the formula for `1f1b`.
//
// The clock runs each position's passes in the order that its schedule prescribes. A pass starts
// when its position is free and what it needs has arrived. As these times do not depend on the
// order in which positions are looked at, the clock sweeps down the positions and up again, each
// time taking every position as far as it gets, until all weight gradients are done; no queue of
// events is needed, and a sweep down and up moves every micro-batch that can move.
//
// The formula takes a round trip of the first micro-batch and one period for each other. The period
// is the slowest position's work, or the time in which a position gets a micro-batch back divided
// by the micro-batches that it may have under way (Little's law).
#include "runners/plan/search/score/pipeline_clock.hpp"

#include <algorithm>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

enum class Pass { forward, input_gradient, weight_gradient };

/// One position's place in its order of passes.
struct Progress {
  int forwards = 0, backwards = 0, weights = 0;
  /// Seconds from the start of the step until the position's last pass ends.
  double free = 0;
};

class PipelineClock {
 public:
  PipelineClock(const std::vector<ClockStage>& stages, int micro_batches, ClockOrder order)
      : stages_(stages),
        micro_batches_(micro_batches),
        count_(static_cast<int>(stages.size())),
        zero_bubble_(order == ClockOrder::zb_h1   ? 1
                     : order == ClockOrder::zb_h2 ? 2
                                                  : 0),
        progress_(stages.size()),
        forward_end_(stages.size(), std::vector<double>(micro_batches, 0)),
        backward_end_(forward_end_) {}

  std::vector<double> run() {
    int left = count_;
    while (left > 0) {
      int moved = 0;
      left = 0;
      for (int s = 0; s < count_; ++s) moved += advance(s);
      for (int s = count_ - 1; s >= 0; --s) {
        moved += advance(s);
        left += progress_[s].weights < micro_batches_ ? 1 : 0;
      }
      // No progress would mean warm-ups that break the promises of pipeline_ends().
      HETEROPERF_EXPECT(moved > 0 || left == 0);
    }
    std::vector<double> ends;
    for (const Progress& progress : progress_) ends.push_back(progress.free);
    return ends;
  }

 private:
  /// Runs position s as far as it gets and returns the number of passes.
  int advance(int s) {
    Progress& at = progress_[s];
    int moved = 0;
    while (at.weights < micro_batches_) {
      const Pass pass = zero_bubble_ > 0 ? next_zero_bubble(s, at) : next_one_f_one_b(s, at);
      if (pass == Pass::weight_gradient) {
        at.free += stages_[s].weight_gradient_s;
        ++at.weights;
      } else if (!(pass == Pass::forward ? run_forward(s, at) : run_backward(s, at))) {
        break;
      }
      ++moved;
    }
    return moved;
  }

  Pass next_one_f_one_b(int s, const Progress& at) const {
    const int ahead = at.forwards - at.backwards;
    const bool forward = at.forwards < micro_batches_ && ahead <= stages_[s].warm_up;
    return forward ? Pass::forward : Pass::input_gradient;
  }

  /// w = k(p−r−1) forwards; then for each i: F if any remain, B_i, the oldest W if w + i ≥ k(p−1);
  /// then the remaining W.
  Pass next_zero_bubble(int s, const Progress& at) const {
    const int warm_up = zero_bubble_ * (count_ - 1 - s);
    if (at.forwards < std::min(micro_batches_, warm_up)) return Pass::forward;
    // After B_i one W is due when w + i has reached k(p−1).
    const int due = at.backwards - (zero_bubble_ * (count_ - 1) - warm_up);
    if (at.weights < due || at.backwards == micro_batches_) return Pass::weight_gradient;
    const bool forward = at.forwards < micro_batches_ && at.forwards <= warm_up + at.backwards;
    return forward ? Pass::forward : Pass::input_gradient;
  }

  bool run_forward(int s, Progress& at) {
    double arrived = 0;
    if (s > 0) {
      if (progress_[s - 1].forwards <= at.forwards) return false;
      arrived = forward_end_[s - 1][at.forwards] + stages_[s - 1].activation_s;
    }
    at.free = std::max(at.free, arrived) + stages_[s].forward_s;
    forward_end_[s][at.forwards++] = at.free;
    return true;
  }

  bool run_backward(int s, Progress& at) {
    double arrived = 0;
    if (s + 1 < count_) {
      if (progress_[s + 1].backwards <= at.backwards) return false;
      arrived = backward_end_[s + 1][at.backwards] + stages_[s].gradient_s;
    }
    const ClockStage& stage = stages_[s];
    // Recomputation needs no gradient: it fills the wait.
    at.free = std::max(at.free + stage.recompute_s, arrived) + stage.input_gradient_s;
    if (zero_bubble_ == 0) at.free += stage.weight_gradient_s, ++at.weights;
    backward_end_[s][at.backwards++] = at.free;
    return true;
  }

  const std::vector<ClockStage>& stages_;
  // `zero_bubble_` is the k of the zero-bubble orders: 1 for `zb-h1`, 2 for `zb-h2`, 0 for `1f1b`.
  int micro_batches_, count_, zero_bubble_;
  std::vector<Progress> progress_;
  std::vector<std::vector<double>> forward_end_, backward_end_;
};

}  // namespace

std::vector<double> pipeline_ends(const std::vector<ClockStage>& stages, int micro_batches,
                                  ClockOrder order) {
  return PipelineClock(stages, micro_batches, order).run();
}

double pipeline_estimate(const std::vector<ClockStage>& stages, int micro_batches) {
  double round_trip = 0, period = 0;
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    const double work = stage->work_s();
    const bool last = stage == stages.rbegin();
    round_trip += work + (last ? 0 : stage->activation_s + stage->gradient_s);
    const int under_way = std::min(micro_batches, stage->warm_up + 1);
    period = std::max({period, work, round_trip / under_way});
  }
  return round_trip + (micro_batches - 1) * period;
}

}  // namespace heteroperf
