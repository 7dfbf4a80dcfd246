#pragma once

#include <cstdint>
#include <limits>

namespace heteroperf {

/// How good a trial was. Worst first: failed and diverged ones, then those that survived fewer
/// steps, then lower quality, then higher loss (NaN: the highest).
struct Score {
  bool usable = false;  ///< false: failed or diverged
  std::uint64_t steps = 0;
  double quality = 0.0;
  double loss = std::numeric_limits<double>::quiet_NaN();
};

/// True when `a` is better than `b`; a strict weak order.
bool better(const Score& a, const Score& b);

}  // namespace heteroperf
