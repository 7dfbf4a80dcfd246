#include "automl/tpe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "automl/parzen.hpp"
#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

double inside(const Dimension& dimension, double value) {
  return dimension.scale == Scale::logarithmic ? std::log(value) : value;
}

void check(const std::vector<Dimension>& dimensions) {
  ProblemList problems;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    const Dimension& d = dimensions[i];
    if (d.scale == Scale::categorical) {
      if (d.choices == 0) problems.add(fmt::format("parameter {} has no choices", i));
    } else if (!(d.low <= d.high) || (d.scale == Scale::logarithmic && !(d.low > 0.0))) {
      problems.add(fmt::format("parameter {} ranges over {} … {}", i, d.low, d.high),
                   "must not be inverted, and above 0 on a logarithmic scale");
    }
  }
  problems.throw_if_any();
}

std::vector<double> column(const std::vector<const std::vector<double>*>& points, std::size_t i) {
  std::vector<double> values;
  for (const auto* point : points) values.push_back((*point)[i]);
  return values;
}

/// The candidate, drawn from the good ones, that is likeliest good: largest l(x) / g(x).
template <class Parzen>
double best_candidate(const Parzen& good, const Parzen& rest, std::size_t candidates,
                      RandomStream& random, TpeStatistics& statistics) {
  double best = 0.0, best_ratio = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < candidates; ++i) {
    const double x = good.sample(random);
    const double ratio = good.log_density(x) - rest.log_density(x);
    statistics.kernel_evaluations += good.kernels() + rest.kernels();
    if (ratio > best_ratio) best = x, best_ratio = ratio;
  }
  return best;
}

}  // namespace

Tpe::Tpe(std::vector<Dimension> dimensions, TpeOptions options)
    : dimensions_(std::move(dimensions)), options_(options) {
  check(dimensions_);
  HETEROPERF_EXPECT(options.candidates > 0 && options.history_limit > options.best_limit);
}

std::vector<double> Tpe::suggest(RandomStream& random) {
  ++statistics_.suggestions;
  const bool blind = random.unit() < options_.random_fraction;
  std::vector<double> values;
  if (blind || finished_.size() < options_.random_start) {
    ++statistics_.random;
    for (std::size_t i = 0; i < dimensions_.size(); ++i) {
      values.push_back(outside(i, draw_uniformly(i, random)));
    }
    return values;
  }
  const auto [good, rest] = split();
  for (std::size_t i = 0; i < dimensions_.size(); ++i) {
    values.push_back(outside(i, suggest_one(i, good, rest, random)));
  }
  return values;
}

void Tpe::begin(std::uint64_t id, std::vector<double> point) {
  HETEROPERF_EXPECT(point.size() == dimensions_.size());
  for (std::size_t i = 0; i < point.size(); ++i) point[i] = inside(dimensions_[i], point[i]);
  HETEROPERF_EXPECT(pending_.emplace(id, std::move(point)).second);
}

void Tpe::finish(std::uint64_t id, const Score& score) {
  const auto pending = pending_.find(id);
  HETEROPERF_EXPECT(pending != pending_.end());
  finished_.push_back({std::move(pending->second), score});
  pending_.erase(pending);
  if (finished_.size() > options_.history_limit) forget_one();
}

void Tpe::drop(std::uint64_t id) { pending_.erase(id); }

std::vector<std::size_t> Tpe::best_first(std::size_t count) const {
  std::vector<std::size_t> order(finished_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto ahead = [&](std::size_t a, std::size_t b) {
    if (better(finished_[a].score, finished_[b].score)) return true;
    return !better(finished_[b].score, finished_[a].score) && a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    ahead);
  order.resize(count);
  return order;
}

// The oldest that is not among the best.
void Tpe::forget_one() {
  const auto best = best_first(options_.best_limit);
  std::size_t oldest = 0;
  while (std::find(best.begin(), best.end(), oldest) != best.end()) ++oldest;
  finished_.erase(finished_.begin() + static_cast<std::ptrdiff_t>(oldest));
}

Tpe::Split Tpe::split() const {
  const auto n = static_cast<double>(finished_.size());
  const auto share = static_cast<std::size_t>(std::ceil(options_.best_fraction * n));
  const auto best = best_first(std::min({share, options_.best_limit, finished_.size()}));
  Split split;
  for (std::size_t i = 0; i < finished_.size(); ++i) {
    const bool good = std::find(best.begin(), best.end(), i) != best.end();
    (good ? split.good : split.rest).push_back(&finished_[i].point);
  }
  // Only the newest: a request must stay cheap.
  auto pending = pending_.begin();
  if (pending_.size() > options_.history_limit) {
    std::advance(pending, pending_.size() - options_.history_limit);
  }
  for (; pending != pending_.end(); ++pending) split.rest.push_back(&pending->second);
  return split;
}

double Tpe::suggest_one(std::size_t i, const Points& good, const Points& rest,
                        RandomStream& random) {
  const Dimension& d = dimensions_[i];
  if (d.scale == Scale::categorical) {
    return best_candidate(ParzenCategorical(column(good, i), d.choices),
                          ParzenCategorical(column(rest, i), d.choices), options_.candidates,
                          random, statistics_);
  }
  const double low = inside(d, d.low), high = inside(d, d.high);
  if (low == high) return low;
  return best_candidate(ParzenNumeric(column(good, i), low, high),
                        ParzenNumeric(column(rest, i), low, high), options_.candidates, random,
                        statistics_);
}

double Tpe::draw_uniformly(std::size_t i, RandomStream& random) const {
  const Dimension& d = dimensions_[i];
  if (d.scale == Scale::categorical) return static_cast<double>(random.below(d.choices));
  const double low = inside(d, d.low), high = inside(d, d.high);
  return low + (high - low) * random.unit();
}

// Rounding of exp must not leave the range.
double Tpe::outside(std::size_t i, double internal) const {
  const Dimension& d = dimensions_[i];
  if (d.scale == Scale::categorical) return internal;
  return std::clamp(d.scale == Scale::logarithmic ? std::exp(internal) : internal, d.low, d.high);
}

}  // namespace heteroperf
