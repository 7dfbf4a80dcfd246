#include "runners/engine/pipeline/device_times.hpp"

namespace heteroperf {
namespace {

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

}  // namespace

void DeviceTimes::begin_step(std::int64_t start_ns) {
  times_.clear();
  start_ns_ = start_ns;
  if (accelerator_ != nullptr) start_ = accelerator_->mark();
}

void DeviceTimes::name_last(std::int32_t instruction) {
  if (!times_.empty()) times_.back().instruction = instruction;
}

double DeviceTimes::finish(std::vector<LaneSpan>* lanes) {
  double sum = 0;
  for (const Time& time : times_) {
    const double seconds = time.end->seconds_since(*time.begin);
    sum += seconds;
    if (!time.instruction || lanes == nullptr) continue;
    const std::int64_t begin_ns = start_ns_ + nanoseconds(time.begin->seconds_since(*start_));
    lanes->push_back({TimeLane::overlapped_device, *time.instruction, begin_ns,
                      begin_ns + nanoseconds(seconds)});
  }
  times_.clear();
  return sum;
}

}  // namespace heteroperf
