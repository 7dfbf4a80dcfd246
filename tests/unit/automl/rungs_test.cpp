#include "automl/rungs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

TEST(Rungs, MilestonesGrowGeometrically) {
  const Rungs rungs({50, 3, 4});
  EXPECT_EQ(rungs.milestone(0), 50u);
  EXPECT_EQ(rungs.milestone(1), 150u);
  EXPECT_EQ(rungs.milestone(3), 1350u);
  EXPECT_THROW(rungs.milestone(4), Error);
}

TEST(Rungs, TheFirstArrivalProceedsAndTheLastRungFinishes) {
  Rungs rungs({1, 2, 2});
  EXPECT_EQ(rungs.record(0, 0.0, 9.0), RungVerdict::proceed);
  EXPECT_EQ(rungs.record(1, 0.0, 9.0), RungVerdict::finished);
  EXPECT_EQ(rungs.record(1, 0.0, 9.0), RungVerdict::finished);
}

TEST(Rungs, FollowsTheRuleOfTheTopShare) {
  for (std::uint32_t eta : {2u, 3u, 4u}) {
    Rungs rungs({1, eta, 3});
    RandomStream random(eta);
    std::vector<double> seen;
    for (std::size_t n = 1; n <= 400; ++n) {
      const double quality = static_cast<double>(random.below(1000));
      std::size_t not_worse = 0;  // an equal one that came earlier is ahead
      for (double other : seen) not_worse += other >= quality;
      seen.push_back(quality);
      const bool top = not_worse < std::max<std::size_t>(1, n / eta);
      EXPECT_EQ(rungs.record(0, quality, 1.0), top ? RungVerdict::proceed : RungVerdict::stop) << n;
    }
    EXPECT_EQ(rungs.recorded(0), 400u);
    EXPECT_EQ(rungs.recorded(1), 0u);
  }
}

TEST(Rungs, LossBreaksTies) {
  Rungs rungs({1, 2, 2});
  EXPECT_EQ(rungs.record(0, 0.5, 2.0), RungVerdict::proceed);
  EXPECT_EQ(rungs.record(0, 0.5, 1.0), RungVerdict::proceed);
  EXPECT_EQ(rungs.record(0, 0.5, 1.5), RungVerdict::stop);
  EXPECT_EQ(rungs.record(0, 0.5, std::nan("")), RungVerdict::stop);
}

TEST(Rungs, RefusesImpossibleOptions) {
  EXPECT_THROW(Rungs({0, 3, 4}), Error);
  EXPECT_THROW(Rungs({1, 1, 4}), Error);
  EXPECT_THROW(Rungs({1, 3, 0}), Error);
  EXPECT_THROW(Rungs({1, 2, 65}), UserError);
  EXPECT_NO_THROW(Rungs({1, 2, 64}));
  Rungs rungs({1, 3, 2});
  EXPECT_THROW(rungs.record(0, std::nan(""), 0.0), Error);
}

}  // namespace
}  // namespace heteroperf
