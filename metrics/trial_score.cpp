#include "metrics/trial_score.hpp"

#include <cmath>
#include <tuple>

namespace heteroperf {
namespace {

double comparable(double loss) {
  return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
}

}  // namespace

bool better(const Score& a, const Score& b) {
  if (a.usable != b.usable || !a.usable) return a.usable && !b.usable;
  return std::tuple(a.steps, a.quality, -comparable(a.loss)) >
         std::tuple(b.steps, b.quality, -comparable(b.loss));
}

}  // namespace heteroperf
