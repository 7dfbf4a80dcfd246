#include "automl/rungs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// Throws UserError with every option that leaves no budget.
void check(const RungOptions& options) {
  ProblemList problems;
  if (options.first_steps < 1) problems.add("first_steps is 0", "a trial needs steps");
  if (options.eta < 2) problems.add(fmt::format("eta is {}", options.eta), "must be at least 2");
  if (options.rungs < 1) problems.add("rungs is 0", "there is at least one milestone");
  std::uint64_t steps = options.first_steps;
  for (std::uint32_t rung = 1; rung < options.rungs && problems.empty(); ++rung) {
    if (__builtin_mul_overflow(steps, std::uint64_t{options.eta}, &steps)) {
      problems.add(fmt::format("{} · {}^{} steps", options.first_steps, options.eta, rung),
                   "more than 64 bits hold", "Use fewer rungs.");
    }
  }
  problems.throw_if_any();
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
