#include "runners/engine/pipeline/paced_timeline.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "metrics/base/clock.hpp"
#include "runners/engine/pipeline/step_clock.hpp"

namespace heteroperf {
namespace {

/// Of a step.
constexpr double late_share = 0.01;

double thread_cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

void PacedTimeline::start_step(std::int64_t start_ns) {
  start_ns_ = start_ns;
  free_s_ = 0;
  cpu_start_s_ = thread_cpu_s();
  report_.worst_lateness_s = 0;
}

std::int64_t PacedTimeline::real_ns(double modelled_s) const {
  return start_ns_ + static_cast<std::int64_t>(modelled_s * report_.dilation * 1e9);
}

double PacedTimeline::finish(double inputs_s, double duration_s) {
  free_s_ = std::max(free_s_, inputs_s) + duration_s;
  const std::int64_t now = now_ns();
  ++report_.operations;
  const double lateness_s = static_cast<double>(now - real_ns(free_s_)) * 1e-9;
  report_.worst_lateness_s = std::max(report_.worst_lateness_s, lateness_s);
  const double allowed_s = late_share * report_.step_s * report_.dilation;
  if (report_.step_s > 0 && lateness_s > allowed_s) ++report_.late;
  sleep_to(free_s_);
  return free_s_;
}

void PacedTimeline::wait_until(double modelled_s) {
  free_s_ = std::max(free_s_, modelled_s);
  sleep_to(free_s_);
}

double PacedTimeline::worked_s() const { return thread_cpu_s() - cpu_start_s_; }

void PacedTimeline::dilate(double dilation) {
  report_.dilation = dilation;
  report_.operations = report_.late = 0;
}

void PacedTimeline::end_step() { report_.step_s = free_s_; }

void PacedTimeline::sleep_to(double modelled_s) {
  using Clock = std::chrono::steady_clock;
  std::this_thread::sleep_until(Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(real_ns(modelled_s)))));
}

}  // namespace heteroperf
