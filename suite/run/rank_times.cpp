#include "suite/run/rank_times.hpp"

namespace heteroperf {
namespace {

constexpr double nanosecond = 1e-9;

}  // namespace

void SplitSums::add(const StepReport& report) {
  if (steps_ == 0) {
    first_step_ = report.step;
    start_ns_ = end_ns_ = report.t_start_ns;
  }
  sums_.compute_s += report.split.compute_s;
  sums_.communication_s += report.split.communication_s;
  sums_.bubble_s += report.split.bubble_s;
  sums_.data_s += report.split.data_s;
  sums_.other_s += report.split.other_s;
  sums_.other_s += static_cast<double>(report.t_start_ns - end_ns_) * nanosecond;
  end_ns_ = report.t_end_ns;
  ++steps_;
}

std::optional<RankTimeEvent> SplitSums::event(std::int32_t rank,
                                              const StepOperations& operations) const {
  if (steps_ == 0) return std::nullopt;
  RankTimeEvent event;
  event.rank = rank;
  event.first_step = first_step_;
  event.steps = steps_;
  event.wall_s = static_cast<double>(end_ns_ - start_ns_) * nanosecond;
  event.split = sums_;
  event.strict = operations.strict * steps_;
  event.recompute = operations.recompute * steps_;
  return event;
}

}  // namespace heteroperf
