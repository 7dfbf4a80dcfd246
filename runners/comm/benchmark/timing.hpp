#pragma once

#include <functional>
#include <string>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "metrics/bootstrap.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

struct TimingConfig {
  int warmup = 5;
  int iterations = 0;   ///< 0: as many as fit the budget, 7 to 5000
  Seconds budget{0.5};  ///< per case
};

/// How long one call takes: per iteration the slowest rank's time.
struct CallTime {
  Seconds median{0}, fastest{0}, p95{0};
  Interval ci95;  ///< of the median, seconds; order statistics, no assumption on the distribution
  std::size_t iterations = 0;
};

/// Times `call` on all ranks of `group`, which starts it together and shares the times; `call`
/// itself may use another communicator of the same ranks. Collective; equal on all ranks.
CallTime time_calls(Communicator& group, const std::function<void()>& call,
                    const TimingConfig& config);

/// Summary of samples in seconds; at least one.
CallTime summarise(std::vector<double> seconds);

}  // namespace heteroperf
