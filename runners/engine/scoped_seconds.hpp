#pragma once

#include <chrono>

namespace heteroperf {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Adds the seconds of its life to a total, when there is one.
class ScopedSeconds {
 public:
  explicit ScopedSeconds(double* total) : total_(total) {
    if (total_ != nullptr) start_ = Clock::now();
  }
  ~ScopedSeconds() {
    if (total_ != nullptr) *total_ += seconds_since(start_);
  }
  ScopedSeconds(const ScopedSeconds&) = delete;
  ScopedSeconds& operator=(const ScopedSeconds&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double* total_;
  Clock::time_point start_;
};

}  // namespace heteroperf
