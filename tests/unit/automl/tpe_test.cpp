#include "automl/tpe.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"

namespace heteroperf {
namespace {

using Objective = std::function<double(const std::vector<double>&)>;
constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

Score score(double loss) { return {true, 1, -loss, loss}; }

/// Smallest value of `objective` within `evaluations`, `parallel` of them in flight.
double best_found(const std::vector<Dimension>& space, const Objective& objective,
                  TpeOptions options, std::uint64_t seed, std::uint64_t evaluations,
                  std::uint64_t parallel = 1) {
  Tpe tpe(space, options);
  double best = std::numeric_limits<double>::infinity();
  std::map<std::uint64_t, double> running;
  const auto finish_oldest = [&] {
    const auto [id, value] = *running.begin();
    tpe.finish(id, score(value));
    running.erase(running.begin());
  };
  for (std::uint64_t id = 0; id < evaluations; ++id) {
    RandomStream random(random_bits(seed, id));
    const std::vector<double> point = tpe.suggest(random);
    tpe.begin(id, point);
    running[id] = objective(point);
    best = std::min(best, running[id]);
    if (running.size() >= parallel) finish_oldest();
  }
  return best;
}

double median_best(const std::vector<Dimension>& space, const Objective& objective,
                   std::uint64_t random_start, std::uint64_t evaluations,
                   std::uint64_t parallel = 1) {
  TpeOptions options;
  options.random_start = random_start;
  std::vector<double> bests;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    bests.push_back(best_found(space, objective, options, seed, evaluations, parallel));
  }
  return median(bests);
}

double branin(const std::vector<double>& x) {
  constexpr double pi = std::numbers::pi;
  const double a = x[1] - 5.1 / (4 * pi * pi) * x[0] * x[0] + 5 / pi * x[0] - 6;
  return a * a + 10 * (1 - 1 / (8 * pi)) * std::cos(x[0]) + 10 - 0.39788735772973816;
}
const std::vector<Dimension> branin_space{{Scale::linear, -5, 10, 0}, {Scale::linear, 0, 15, 0}};

double square(double x) { return x * x; }

/// Learning rate and batch interact, decay, units, depth, dropout, optimizer, activation; minimum
/// 0.
double mixed8(const std::vector<double>& x) {
  const double batch = std::round(x[5]), units = std::round(x[2]), depth = std::round(x[3]);
  constexpr double optimizer[] = {0.0, 0.1, 0.5}, activation[] = {0.05, 0.0, 0.2, 0.4};
  return square(std::log10(x[0]) + 2.5 - 0.5 * std::log10(batch / 128)) +
         0.1 * square(std::log10(x[1]) + 4) + 0.05 * square(std::log2(units) - 8) +
         0.05 * square(depth - 4) + 2 * square(x[4] - 0.2) + 0.02 * square(std::log2(batch) - 7) +
         optimizer[static_cast<std::size_t>(x[6])] + activation[static_cast<std::size_t>(x[7])];
}
const std::vector<Dimension> mixed8_space{
    {Scale::logarithmic, 1e-5, 1, 0},  {Scale::logarithmic, 1e-8, 0.1, 0},
    {Scale::logarithmic, 16, 1024, 0}, {Scale::linear, 1, 8, 0},
    {Scale::linear, 0, 0.7, 0},        {Scale::logarithmic, 16, 1024, 0},
    {Scale::categorical, 0, 0, 3},     {Scale::categorical, 0, 0, 4}};

// Random search reaches a median regret of 0.145 on Branin and 0.49 on the mixed function.
TEST(Tpe, FindsTheMinimumOfBranin) {
  const double tpe = median_best(branin_space, branin, 10, 200);
  const double random = median_best(branin_space, branin, never, 200);
  RecordProperty("tpe", std::to_string(tpe));
  RecordProperty("random", std::to_string(random));
  EXPECT_LT(tpe, 0.015);
  EXPECT_LT(5 * tpe, random);
}

TEST(Tpe, FindsTheMinimumOfAMixedFunction) {
  const double tpe = median_best(mixed8_space, mixed8, 10, 200);
  const double random = median_best(mixed8_space, mixed8, never, 200);
  RecordProperty("tpe", std::to_string(tpe));
  RecordProperty("random", std::to_string(random));
  EXPECT_LT(tpe, 0.10);
  EXPECT_LT(3 * tpe, random);
}

TEST(Tpe, KeepsItsEdgeWithSixteenInFlight) {
  EXPECT_LT(3 * median_best(branin_space, branin, 10, 200, 16),
            median_best(branin_space, branin, never, 200));
}

TEST(Tpe, StaysInsideItsRangesAndRepeatsItself) {
  std::vector<std::vector<double>> first;
  for (int run = 0; run < 2; ++run) {
    Tpe tpe(mixed8_space, {});
    RandomStream random(7);
    for (std::uint64_t id = 0; id < 120; ++id) {
      const std::vector<double> point = tpe.suggest(random);
      for (std::size_t i = 0; i < point.size(); ++i) {
        const Dimension& d = mixed8_space[i];
        EXPECT_GE(point[i], d.low);
        EXPECT_LE(point[i],
                  d.scale == Scale::categorical ? static_cast<double>(d.choices) - 1 : d.high);
      }
      if (run == 0) first.push_back(point);
      EXPECT_EQ(point, first[id]);
      tpe.begin(id, point);
      if (id % 3 != 0) tpe.finish(id, score(mixed8(point)));
    }
  }
}

TEST(Tpe, FailedTrialsPushItAway) {
  // Everything above 0.5 fails; below, 0.4 is best.
  Tpe tpe({{Scale::linear, 0, 1, 0}}, {});
  RandomStream random(11);
  int above = 0;
  for (std::uint64_t id = 0; id < 200; ++id) {
    const std::vector<double> point = tpe.suggest(random);
    tpe.begin(id, point);
    const bool fails = point[0] > 0.5;
    tpe.finish(id, {!fails, 1, fails ? 1e9 : -square(point[0] - 0.4), 0.0});
    above += id >= 100 && fails;
  }
  EXPECT_LT(above, 20);
}

TEST(Tpe, PendingSuggestionsSpread) {
  // Twenty suggestions without a result, after a history with one sharp optimum.
  const auto spread = [](bool tell) {
    Tpe tpe({{Scale::linear, 0, 1, 0}}, {});
    RandomStream random(5);
    for (std::uint64_t id = 0; id < 60; ++id) {
      const double x = random.unit();
      tpe.begin(id, {x});
      tpe.finish(id, score(square(x - 0.3)));
    }
    std::vector<double> points;
    for (std::uint64_t id = 100; id < 140; ++id) {
      points.push_back(tpe.suggest(random)[0]);
      if (tell) tpe.begin(id, {points.back()});
    }
    return quantile(points, 0.9) - quantile(points, 0.1);
  };
  EXPECT_GT(spread(true), spread(false));
}

TEST(Tpe, CostIsBoundedWhateverTheHistory) {
  // Results become better and better, so that the newest of them are the best as well.
  const auto suggestions = [](std::uint64_t known) {
    Tpe tpe({{Scale::linear, 0, 1, 0}}, {});
    const auto begin = [&](std::uint64_t id) { tpe.begin(id, {RandomStream(id).unit()}); };
    for (std::uint64_t id = 3000 - known; id < 3000; ++id) {
      begin(id);
      tpe.finish(id, score(-static_cast<double>(id)));
    }
    for (std::uint64_t id = 6000 - known; id < 6000; ++id) begin(id);
    RandomStream random(3);
    std::vector<double> points;
    for (int i = 0; i < 20; ++i) points.push_back(tpe.suggest(random)[0]);
    return points;
  };
  EXPECT_EQ(suggestions(3000), suggestions(TpeOptions().history_limit));
}

TEST(Tpe, ATenthStaysRandom) {
  Tpe tpe({{Scale::categorical, 0, 0, 2}}, {});
  RandomStream random(9);
  int worse = 0;
  for (std::uint64_t id = 0; id < 400; ++id) {
    const auto point = tpe.suggest(random);
    tpe.begin(id, point);
    tpe.finish(id, score(point[0]));
    worse += point[0] > 0.0;
  }
  // Half of the random draws take the worse choice.
  EXPECT_GT(worse, 12);
  EXPECT_LT(worse, 45);
}

TEST(Tpe, RefusesImpossibleDimensions) {
  EXPECT_THROW(Tpe({{Scale::linear, 1, 0, 0}}, {}), Error);
  EXPECT_THROW(Tpe({{Scale::logarithmic, 0, 1, 0}}, {}), Error);
  EXPECT_THROW(Tpe({{Scale::categorical, 0, 0, 0}}, {}), Error);
  Tpe tpe({{Scale::linear, 0, 1, 0}}, {});
  EXPECT_THROW(tpe.finish(1, {}), Error);
}

TEST(Parzen, NumericDensityIntegratesToOneAndMatchesItsSamples) {
  const std::vector<double> values{-1.0, -0.9, 0.2, 1.7, 1.9};
  const ParzenNumeric parzen(values, -1.0, 2.0);
  constexpr int cells = 3000;
  double mass = 0.0, below_half = 0.0;
  for (int i = 0; i < cells; ++i) {
    const double x = -1.0 + 3.0 * (i + 0.5) / cells;
    const double cell = std::exp(parzen.log_density(x)) * 3.0 / cells;
    mass += cell;
    if (x < 0.5) below_half += cell;
  }
  EXPECT_NEAR(mass, 1.0, 1e-6);
  RandomStream random(2);
  int hits = 0;
  constexpr int draws = 20000;
  for (int i = 0; i < draws; ++i) hits += parzen.sample(random) < 0.5;
  EXPECT_NEAR(static_cast<double>(hits) / draws, below_half, 0.015);
}

TEST(Parzen, CategoricalProbabilitiesSumToOneAndFavourWhatWasSeen) {
  const ParzenCategorical parzen({1, 1, 2}, 4);
  double sum = 0.0;
  for (int c = 0; c < 4; ++c) sum += std::exp(parzen.log_density(c));
  EXPECT_NEAR(sum, 1.0, 1e-12);
  EXPECT_GT(parzen.log_density(1), parzen.log_density(2));
  EXPECT_GT(parzen.log_density(2), parzen.log_density(0));
  EXPECT_EQ(parzen.log_density(0), parzen.log_density(3));
}

}  // namespace
}  // namespace heteroperf
