#include "runners/engine/paced_timeline.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "runners/engine/step_clock.hpp"

namespace heteroperf {

void PacedTimeline::start_step(std::int64_t start_ns) {
  start_ns_ = resumed_ns_ = start_ns;
  free_s_ = worked_s_ = 0;
  report_.worst_lateness_s = 0;
}

std::int64_t PacedTimeline::real_ns(double modelled_s) const {
  return start_ns_ + static_cast<std::int64_t>(modelled_s * report_.dilation * 1e9);
}

double PacedTimeline::finish(double inputs_s, double duration_s) {
  free_s_ = std::max(free_s_, inputs_s) + duration_s;
  const std::int64_t now = steady_now_ns();
  worked_s_ += static_cast<double>(now - resumed_ns_) * 1e-9;
  ++report_.operations;
  const double lateness_s = static_cast<double>(now - real_ns(free_s_)) * 1e-9;
  if (lateness_s > 0) {
    ++report_.late;
    report_.worst_lateness_s = std::max(report_.worst_lateness_s, lateness_s);
  }
  sleep_to(free_s_);
  return free_s_;
}

void PacedTimeline::wait_until(double modelled_s) {
  free_s_ = std::max(free_s_, modelled_s);
  sleep_to(free_s_);
}

void PacedTimeline::end_step() { report_.step_s = free_s_; }

void PacedTimeline::sleep_to(double modelled_s) {
  using Clock = std::chrono::steady_clock;
  std::this_thread::sleep_until(
      Clock::time_point(std::chrono::duration_cast<Clock::duration>(
          std::chrono::nanoseconds(real_ns(modelled_s)))));
  resumed_ns_ = steady_now_ns();
}

}  // namespace heteroperf
