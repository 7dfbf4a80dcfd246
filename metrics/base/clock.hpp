#pragma once

#include <cstdint>
#include <ctime>

namespace heteroperf {

/// Returns nanoseconds on this host's monotonic clock, which journals, traces and deadlines share.
/// A signal handler may call it, unlike the clocks of the C++ library.
inline std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

/// Returns the same clock in seconds.
inline double monotonic_s() { return static_cast<double>(now_ns()) * 1e-9; }

inline double seconds_since(std::int64_t start_ns) {
  return static_cast<double>(now_ns() - start_ns) * 1e-9;
}

/// Measures time from its construction on.
class Stopwatch {
 public:
  double elapsed_s() const { return seconds_since(start_ns_); }

 private:
  std::int64_t start_ns_ = now_ns();
};

/// Adds the seconds of its life to `total`.
class ScopedSeconds {
 public:
  explicit ScopedSeconds(double& total) : total_(total) {}
  ~ScopedSeconds() { total_ += seconds_since(start_ns_); }
  ScopedSeconds(const ScopedSeconds&) = delete;
  ScopedSeconds& operator=(const ScopedSeconds&) = delete;

 private:
  double& total_;
  std::int64_t start_ns_ = now_ns();
};

}  // namespace heteroperf
