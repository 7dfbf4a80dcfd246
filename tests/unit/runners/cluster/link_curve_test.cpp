#include "runners/cluster/link_curve.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

using Points = std::vector<LinkCurve::Point>;

LinkCurve::Point point(std::uint64_t bytes, double time_s) {
  return {Bytes(bytes), Seconds(time_s)};
}

TEST(LinkCurve, IsLatencyPlusSizeOverBandwidth) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(-7, -1), rate(4, 12);
  for (int i = 0; i < 200; ++i) {
    const double latency_s = std::pow(10, exponent(random));
    const double bandwidth = std::pow(10, rate(random));
    const LinkCurve curve{Seconds(latency_s), BytesPerSecond(bandwidth)};
    EXPECT_EQ(curve.latency(), Seconds(latency_s));
    EXPECT_NEAR(curve.bandwidth().value() / bandwidth, 1, 1e-12);
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{12345},
                                      std::uint64_t{1} << 30, std::uint64_t{1} << 42}) {
      const double expected = latency_s + static_cast<double>(bytes) / bandwidth;
      EXPECT_NEAR(curve.time(Bytes(bytes)).value() / expected, 1, 1e-9) << bytes;
    }
  }
}

TEST(LinkCurve, PassesThroughItsPointsOnStraightLines) {
  const LinkCurve curve(Points{point(64, 1e-6), point(1024, 2e-6), point(4096, 8e-6)});
  EXPECT_EQ(curve.time(Bytes(0)), Seconds(1e-6));
  EXPECT_EQ(curve.time(Bytes(64)), Seconds(1e-6));
  EXPECT_EQ(curve.time(Bytes(1024)), Seconds(2e-6));
  EXPECT_DOUBLE_EQ(curve.time(Bytes(544)).value(), 1.5e-6);
  EXPECT_DOUBLE_EQ(curve.time(Bytes(2560)).value(), 5e-6);
  EXPECT_DOUBLE_EQ(curve.time(Bytes(4096 + 3072)).value(), 14e-6);
  EXPECT_DOUBLE_EQ(curve.bandwidth().value(), 3072 / 6e-6);
  EXPECT_EQ(curve.latency(), Seconds(1e-6));
}

TEST(LinkCurve, NeverFalls) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> step(0, 1e-4);
  for (int i = 0; i < 100; ++i) {
    Points points;
    double time_s = 1e-6;
    for (std::uint64_t bytes = 64; bytes <= 1 << 20; bytes *= 4) {
      points.push_back(point(bytes, time_s += random() % 3 == 0 ? 0 : step(random)));
    }
    const LinkCurve curve(points);
    Seconds before(0);
    for (std::uint64_t bytes = 0; bytes < 4 << 20; bytes += 10007) {
      const Seconds now = curve.time(Bytes(bytes));
      ASSERT_GE(now.value(), before.value() * (1 - 1e-12));
      before = now;
    }
  }
}

TEST(LinkCurve, LevelEndAndSinglePointCountTheWholeMessage) {
  const LinkCurve level(Points{point(100, 1.0), point(200, 1.0)});
  EXPECT_DOUBLE_EQ(level.bandwidth().value(), 200);
  EXPECT_DOUBLE_EQ(level.time(Bytes(400)).value(), 2);
  const LinkCurve single(Points{point(100, 1.0)});
  EXPECT_DOUBLE_EQ(single.time(Bytes(300)).value(), 3);
  EXPECT_DOUBLE_EQ(single.time(Bytes(1)).value(), 1);
}

TEST(LinkCurve, LatencyMayBeZero) {
  const LinkCurve curve{Seconds(0), BytesPerSecond(100)};
  EXPECT_EQ(curve.time(Bytes(0)), Seconds(0));
  EXPECT_DOUBLE_EQ(curve.time(Bytes(50)).value(), 0.5);
  EXPECT_EQ(LinkCurve(curve.points()), curve);
}

TEST(LinkCurve, RefusesWrongNumbers) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const double latency_s : {-1e-9, nan, infinity}) {
    EXPECT_THROW(LinkCurve(Seconds(latency_s), BytesPerSecond(1)), UserError) << latency_s;
  }
  for (const double bandwidth : {0.0, -1.0, nan, infinity, 1e-300}) {
    EXPECT_THROW(LinkCurve(Seconds(1), BytesPerSecond(bandwidth)), UserError) << bandwidth;
  }
  EXPECT_THROW(LinkCurve(Points{}), UserError);
  EXPECT_THROW(LinkCurve(Points{point(0, 1)}), UserError);
  EXPECT_THROW(LinkCurve(Points{point(64, 0)}), UserError);
  EXPECT_THROW(LinkCurve(Points{point(64, nan)}), UserError);
  EXPECT_THROW(LinkCurve(Points{point(64, 1), point(64, 2)}), UserError);
  EXPECT_THROW(LinkCurve(Points{point(64, 2), point(32, 3)}), UserError);
  EXPECT_THROW(LinkCurve(Points{point(64, 2), point(128, 1)}), UserError);
  EXPECT_NO_THROW(LinkCurve(Points{point(0, 0), point(128, 1)}));
}

TEST(LinkCurve, ReportsEveryWrongPoint) {
  try {
    LinkCurve(Points{point(64, -1), point(32, 3), point(128, 2)});
    FAIL() << "no exception";
  } catch (const UserError& error) {
    EXPECT_EQ(error.problems().size(), 3u);
  }
}

}  // namespace
}  // namespace heteroperf
