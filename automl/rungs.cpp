#include "automl/rungs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// Throws UserError where the steps of the last rung are too many.
void check(const RungOptions& options) {
  HETEROPERF_EXPECT(options.first_steps > 0 && options.eta > 1 && options.rungs > 0);
  std::uint64_t steps = options.first_steps;
  for (std::uint32_t rung = 1; rung < options.rungs; ++rung) {
    if (!__builtin_mul_overflow(steps, std::uint64_t{options.eta}, &steps)) continue;
    throw UserError(fmt::format("{} · {}^{} steps", options.first_steps, options.eta, rung),
                    "more than 64 bits hold", "Use fewer rungs.");
  }
}

}  // namespace

Rungs::Rungs(const RungOptions& options) : options_(options) {
  check(options);
  results_.resize(options.rungs);
}

std::uint64_t Rungs::milestone(std::uint32_t rung) const {
  HETEROPERF_EXPECT(rung < options_.rungs);
  std::uint64_t steps = options_.first_steps;
  for (std::uint32_t i = 0; i < rung; ++i) steps *= options_.eta;
  return steps;
}

RungVerdict Rungs::record(std::uint32_t rung, double quality, double loss) {
  HETEROPERF_EXPECT(rung < options_.rungs && !std::isnan(quality));
  if (std::isnan(loss)) loss = std::numeric_limits<double>::infinity();
  auto& results = results_[rung];
  const std::pair<double, double> entry{-quality, loss};
  const auto place = std::upper_bound(results.begin(), results.end(), entry);
  const auto rank = static_cast<std::size_t>(place - results.begin());
  results.insert(place, entry);
  if (rung + 1 == options_.rungs) return RungVerdict::finished;
  const std::size_t kept = std::max<std::size_t>(1, results.size() / options_.eta);
  return rank < kept ? RungVerdict::proceed : RungVerdict::stop;
}

}  // namespace heteroperf
