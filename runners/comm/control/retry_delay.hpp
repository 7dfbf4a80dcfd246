#pragma once

#include <algorithm>

namespace heteroperf {

/// How long to wait before the next attempt: 20 ms, then twice as long each time, up to 1 s.
class RetryDelay {
 public:
  double next_s() {
    const double delay_s = next_s_;
    next_s_ = std::min(2 * next_s_, longest_s);
    return delay_s;
  }

 private:
  static constexpr double longest_s = 1.0;
  double next_s_ = 0.02;
};

}  // namespace heteroperf
