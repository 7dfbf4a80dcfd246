#include "automl/rungs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "metrics/base/error.hpp"

namespace heteroperf {

Rungs::Rungs(const RungOptions& options) : eta_(options.eta), results_(options.rungs) {
  HETEROPERF_EXPECT(options.first_steps > 0 && options.eta > 1 && options.rungs > 0);
  milestones_.push_back(options.first_steps);
  while (milestones_.size() < options.rungs) {
    std::uint64_t steps = 0;
    if (__builtin_mul_overflow(milestones_.back(), std::uint64_t{eta_}, &steps)) {
      throw UserError(
          fmt::format("{} · {}^{} steps", options.first_steps, eta_, milestones_.size()),
          "more than 64 bits hold", "Use fewer rungs.");
    }
    milestones_.push_back(steps);
  }
}

std::uint64_t Rungs::milestone(std::uint32_t rung) const {
  HETEROPERF_EXPECT(rung < count());
  return milestones_[rung];
}

RungVerdict Rungs::record(std::uint32_t rung, double quality, double loss) {
  HETEROPERF_EXPECT(rung < count() && !std::isnan(quality));
  if (std::isnan(loss)) loss = std::numeric_limits<double>::infinity();
  auto& results = results_[rung];
  const std::pair<double, double> entry{-quality, loss};
  const auto place = std::upper_bound(results.begin(), results.end(), entry);
  const auto rank = static_cast<std::size_t>(place - results.begin());
  results.insert(place, entry);
  if (rung + 1 == count()) return RungVerdict::finished;
  const std::size_t kept = std::max<std::size_t>(1, results.size() / eta_);
  return rank < kept ? RungVerdict::proceed : RungVerdict::stop;
}

}  // namespace heteroperf
