#pragma once

#include <chrono>

namespace heteroperf {

/// Adds the seconds of its life to a total, when there is one.
class ScopedSeconds {
 public:
  explicit ScopedSeconds(double* total) : total_(total) {
    if (total_ != nullptr) start_ = Clock::now();
  }
  ~ScopedSeconds() {
    if (total_ != nullptr) *total_ += std::chrono::duration<double>(Clock::now() - start_).count();
  }
  ScopedSeconds(const ScopedSeconds&) = delete;
  ScopedSeconds& operator=(const ScopedSeconds&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double* total_;
  Clock::time_point start_;
};

}  // namespace heteroperf
