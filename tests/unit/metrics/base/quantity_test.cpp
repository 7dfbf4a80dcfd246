#include "metrics/base/quantity.hpp"

#include <gtest/gtest.h>

#include <type_traits>

#include "metrics/base/id.hpp"

namespace heteroperf {
namespace {

// Units do not mix and do not appear out of bare numbers.
static_assert(!std::is_convertible_v<double, Seconds>);
static_assert(!std::is_constructible_v<Seconds, Bytes>);
static_assert(!std::is_convertible_v<Seconds, double>);
static_assert(!std::is_constructible_v<RankId, NodeId>);
static_assert(!std::is_convertible_v<std::size_t, RankId>);

TEST(Quantity, ArithmeticKeepsTheUnit) {
  Seconds time(1.5);
  time += Seconds(0.5);
  EXPECT_EQ(time, Seconds(2));
  EXPECT_EQ(3.0 * time - time / 2.0, Seconds(5));
  EXPECT_EQ(Bytes(3) * 4, Bytes(12));
  EXPECT_LT(Bytes(3), Bytes(4));
}

TEST(Quantity, RatioIsAPlainNumberEvenOfIntegers) {
  static_assert(std::is_same_v<decltype(Bytes(1) / Bytes(2)), double>);
  EXPECT_EQ(Bytes(1) / Bytes(2), 0.5);
}

TEST(Id, OrdersAndDefaultsToZero) {
  EXPECT_EQ(RankId(), RankId(0));
  EXPECT_LT(RankId(1), RankId(2));
}

}  // namespace
}  // namespace heteroperf
