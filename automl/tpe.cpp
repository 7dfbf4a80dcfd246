#include "automl/tpe.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <numeric>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"

// A Parzen estimator is a sum of kernels, one at each observation. TPE has two of them per
// parameter, for the good observations (density l) and for the rest (density g); a candidate drawn
// from l is the better, the larger l / g is at its place.

namespace heteroperf {
namespace {

constexpr std::size_t full_weight_count = 25;

/// Returns the weight of observation `age_rank` (0 is the oldest) of n: a ramp from 1/n to 1,
/// then 1.
double observation_weight(std::size_t age_rank, std::size_t n) {
  if (n <= full_weight_count || age_rank + full_weight_count >= n) return 1.0;
  const auto ramp = static_cast<double>(n - full_weight_count);
  const double lowest = 1.0 / static_cast<double>(n);
  return lowest + (1.0 - lowest) * static_cast<double>(age_rank) / ramp;
}

/// Returns the mass of the standard normal distribution between two points.
double normal_mass(double from, double to) {
  return 0.5 * (std::erfc(-to / std::numbers::sqrt2) - std::erfc(-from / std::numbers::sqrt2));
}

}  // namespace

ParzenNumeric::ParzenNumeric(const std::vector<double>& values, double low, double high)
    : low_(low), high_(high) {
  const double range = high - low;
  const std::size_t n = values.size();
  std::vector<double> centres = values;
  centres.push_back(low + 0.5 * range);  // the prior is a neighbour like any other
  const std::vector<std::size_t> order = sorting_order(centres);
  const double narrowest = range / std::min(100.0, static_cast<double>(n) + 2.0);
  for (std::size_t place = 0; place <= n; ++place) {
    const std::size_t i = order[place];
    const double left = place > 0 ? centres[i] - centres[order[place - 1]] : 0.0;
    const double right = place < n ? centres[order[place + 1]] - centres[i] : 0.0;
    const double width = std::clamp(std::max(left, right), narrowest, range);
    kernels_.push_back(i == n ? Kernel{centres[i], range, 1.0, 0.0}
                              : Kernel{centres[i], width, observation_weight(i, n), 0.0});
  }
  for (Kernel& kernel : kernels_) {
    total_weight_ += kernel.weight;
    const double mass =
        normal_mass((low - kernel.centre) / kernel.width, (high - kernel.centre) / kernel.width);
    kernel.factor = kernel.weight / (kernel.width * std::sqrt(2.0 * std::numbers::pi) * mass);
  }
}

double ParzenNumeric::sample(RandomStream& random) const {
  double place = random.unit() * total_weight_;
  std::size_t i = 0;
  while (i + 1 < kernels_.size() && place >= kernels_[i].weight) place -= kernels_[i++].weight;
  // Centres lie inside and no kernel is wider than the range, so at least every third draw is
  // inside.
  constexpr int attempts = 64;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const double x = kernels_[i].centre + kernels_[i].width * draw_normal(random);
    if (x >= low_ && x <= high_) return x;
  }
  return kernels_[i].centre;
}

double ParzenNumeric::log_density(double x) const {
  double sum = 0.0;
  for (const Kernel& kernel : kernels_) {
    const double u = (x - kernel.centre) / kernel.width;
    sum += kernel.factor * std::exp(-0.5 * u * u);
  }
  return std::log(sum / total_weight_);
}

ParzenCategorical::ParzenCategorical(const std::vector<double>& values, std::size_t choices) {
  const std::size_t n = values.size();
  const double smoothing = 1.0 / static_cast<double>(n + 1);
  const double scale = 1.0 / (static_cast<double>(choices) * smoothing + 1.0);
  double weight = 0.0;
  std::vector<double> hits(choices, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    const double w = observation_weight(i, n);
    hits[static_cast<std::size_t>(values[i])] += w;
    weight += w;
  }
  for (double hit : hits) {
    const double observed = (weight * smoothing + hit) * scale;
    probabilities_.push_back((observed + 1.0 / static_cast<double>(choices)) / (weight + 1.0));
  }
}

double ParzenCategorical::sample(RandomStream& random) const {
  double place = random.unit();
  std::size_t i = 0;
  while (i + 1 < probabilities_.size() && place >= probabilities_[i]) place -= probabilities_[i++];
  return static_cast<double>(i);
}

double ParzenCategorical::log_density(double choice) const {
  return std::log(probabilities_.at(static_cast<std::size_t>(choice)));
}

namespace {

/// Returns a value on the internal scale, where a logarithmic parameter is its logarithm.
double inside(const Dimension& dimension, double value) {
  return dimension.scale == Scale::logarithmic ? std::log(value) : value;
}

/// Tells if a dimension has a value: it is neither empty nor inverted.
bool has_values(const Dimension& d) {
  if (d.scale == Scale::categorical) return d.choices > 0;
  return d.low <= d.high && (d.scale == Scale::linear || d.low > 0.0);
}

/// Returns one parameter of all points.
std::vector<double> column(const std::vector<const std::vector<double>*>& points, std::size_t i) {
  std::vector<double> values;
  for (const auto* point : points) values.push_back((*point)[i]);
  return values;
}

/// Draws candidates from the good ones and returns the likeliest good: the largest l(x) / g(x).
template <class Parzen>
double best_candidate(const Parzen& good, const Parzen& rest, std::size_t candidates,
                      RandomStream& random) {
  double best = 0.0, best_ratio = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < candidates; ++i) {
    const double x = good.sample(random);
    const double ratio = good.log_density(x) - rest.log_density(x);
    if (ratio > best_ratio) best = x, best_ratio = ratio;
  }
  return best;
}

/// Draws a value by the good and the other values seen, all on the internal scale.
double suggest_value(const Dimension& d, const std::vector<double>& good,
                     const std::vector<double>& rest, std::size_t candidates,
                     RandomStream& random) {
  if (d.scale == Scale::categorical) {
    return best_candidate(ParzenCategorical(good, d.choices), ParzenCategorical(rest, d.choices),
                          candidates, random);
  }
  const double low = inside(d, d.low), high = inside(d, d.high);
  if (low == high) return low;
  return best_candidate(ParzenNumeric(good, low, high), ParzenNumeric(rest, low, high), candidates,
                        random);
}

/// Draws a value without a model, on the internal scale.
double draw_uniformly(const Dimension& d, RandomStream& random) {
  if (d.scale == Scale::categorical) return static_cast<double>(random.below(d.choices));
  const double low = inside(d, d.low), high = inside(d, d.high);
  return low + (high - low) * random.unit();
}

/// Turns an internal value into an outer one; rounding of exp must not leave the range.
double outside(const Dimension& d, double internal) {
  if (d.scale == Scale::categorical) return internal;
  return std::clamp(d.scale == Scale::logarithmic ? std::exp(internal) : internal, d.low, d.high);
}

}  // namespace

Tpe::Tpe(std::vector<Dimension> dimensions, TpeOptions options)
    : dimensions_(std::move(dimensions)), options_(options) {
  HETEROPERF_EXPECT(std::all_of(dimensions_.begin(), dimensions_.end(), has_values));
  HETEROPERF_EXPECT(options.candidates > 0 && options.history_limit > options.best_limit);
}

std::vector<double> Tpe::suggest(RandomStream& random) const {
  const bool blind =
      random.unit() < options_.random_fraction || finished_.size() < options_.random_start;
  const auto [good, rest] = blind ? Split() : split();
  std::vector<double> values;
  for (std::size_t i = 0; i < dimensions_.size(); ++i) {
    const Dimension& d = dimensions_[i];
    const double value =
        blind ? draw_uniformly(d, random)
              : suggest_value(d, column(good, i), column(rest, i), options_.candidates, random);
    values.push_back(outside(d, value));
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
  if (finished_.size() <= options_.history_limit) return;
  // The oldest observation that is not among the best is forgotten.
  const auto best = best_first(options_.best_limit);
  std::size_t oldest = 0;
  while (std::find(best.begin(), best.end(), oldest) != best.end()) ++oldest;
  finished_.erase(finished_.begin() + static_cast<std::ptrdiff_t>(oldest));
}

/// Returns the indices of the best observations; of equal ones the older is better.
std::vector<std::size_t> Tpe::best_first(std::size_t count) const {
  std::vector<std::size_t> order(finished_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return better(finished_[a].score, finished_[b].score);
  });
  order.resize(count);
  return order;
}

/// Parts the observations into the good ones and the rest, to which pending points belong.
Tpe::Split Tpe::split() const {
  const auto n = static_cast<double>(finished_.size());
  const auto share = static_cast<std::size_t>(std::ceil(options_.best_fraction * n));
  const auto best = best_first(std::min({share, options_.best_limit, finished_.size()}));
  Split split;
  for (std::size_t i = 0; i < finished_.size(); ++i) {
    const bool good = std::find(best.begin(), best.end(), i) != best.end();
    (good ? split.good : split.rest).push_back(&finished_[i].point);
  }
  // Only the newest pending ones count: a request must stay cheap.
  auto pending = pending_.begin();
  if (pending_.size() > options_.history_limit) {
    std::advance(pending, pending_.size() - options_.history_limit);
  }
  for (; pending != pending_.end(); ++pending) split.rest.push_back(&pending->second);
  return split;
}

}  // namespace heteroperf
