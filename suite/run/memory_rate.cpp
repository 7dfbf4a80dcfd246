#include "suite/run/memory_rate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "metrics/quantity.hpp"
#include "suite/run/clock.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t array_bytes = 8u << 20;
constexpr std::size_t elements = array_bytes / sizeof(double);

/// One thread's arrays, first written by itself so that they lie near it.
class Triad {
 public:
  Triad() : a_(elements, 0.0), b_(elements, 1.0), c_(elements, 2.0) {}

  /// Bytes per second of the best pass until `end_ns`; one pass at least.
  double best_rate(std::int64_t end_ns) {
    double best = 0;
    do {
      const std::int64_t start_ns = now_ns();
      pass();
      const auto taken_ns = static_cast<double>(std::max<std::int64_t>(1, now_ns() - start_ns));
      best = std::max(best, 3.0 * array_bytes / (taken_ns * nanosecond));
    } while (now_ns() < end_ns);
    return best;
  }

 private:
  void pass() {
    factor_ = -factor_;
    for (std::size_t i = 0; i < elements; ++i) a_[i] = b_[i] + factor_ * c_[i];
    a_.swap(b_);  // the next pass needs this one
  }

  std::vector<double> a_, b_, c_;
  double factor_ = 0.5;
};

}  // namespace

double measure_memory_rate(int threads, double seconds) {
  const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(seconds / nanosecond);
  std::vector<double> rates(static_cast<std::size_t>(std::max(1, threads)), 0);
  const auto measure = [&](std::size_t i) { rates[i] = Triad().best_rate(end_ns); };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < rates.size(); ++i) others.emplace_back(measure, i);
  measure(0);
  for (std::thread& thread : others) thread.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

}  // namespace heteroperf
