#include "metrics/ops.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t all_ones = ~std::uint64_t{0};

TEST(Ops, DecimalTextRoundTripsOverTheWholeRange) {
  RandomStream random(1);
  for (int i = 0; i < 2000; ++i) {
    const Ops ops = Ops::from_words(random.bits() >> random.below(64), random.bits());
    EXPECT_EQ(Ops::parse(ops.to_string()), ops);
  }
}

TEST(Ops, KnownTexts) {
  EXPECT_EQ(Ops().to_string(), "0");
  EXPECT_EQ(Ops(all_ones).to_string(), "18446744073709551615");
  EXPECT_EQ(Ops::from_words(1, 0).to_string(), "18446744073709551616");
  EXPECT_EQ(Ops::from_words(all_ones, all_ones).to_string(),
            "340282366920938463463374607431768211455");
  EXPECT_EQ(Ops::parse("0007"), Ops(7));
}

TEST(Ops, TenToThe22NeedsMoreThan64Bits) {
  const Ops ops = Ops::parse("10000000000000000000000");
  EXPECT_EQ(ops.high(), 542u);
  EXPECT_EQ(ops.to_string(), "10000000000000000000000");
  EXPECT_EQ(ops.to_double(), 1e22);
  EXPECT_EQ(Ops(100000000000) * 100000000000, ops);
  EXPECT_EQ(ops / 100000000000, Ops(100000000000));
}

TEST(Ops, RefusesWhatIsNoCount) {
  for (const char* text :
       {"", "-1", "+1", " 1", "1e3", "12x", "0x10", "1.0",
        "340282366920938463463374607431768211456", "999999999999999999999999999999999999999999"}) {
    EXPECT_THROW(Ops::parse(text), UserError) << text;
  }
}

TEST(Ops, ArithmeticThatLeavesTheRangeThrows) {
  const Ops most = Ops::from_words(all_ones, all_ones);
  EXPECT_THROW(most + Ops(1), Error);
  EXPECT_THROW(Ops(1) - Ops(2), Error);
  EXPECT_THROW(Ops::from_words(1, 0) * all_ones + Ops::from_words(1, 0), Error);
  EXPECT_THROW(Ops::from_words(std::uint64_t{1} << 63, 0) * 2, Error);
  EXPECT_THROW(Ops(1) / 0, Error);
  EXPECT_EQ(most - most, Ops());
}

TEST(Ops, CarriesBetweenWordsAndOrders) {
  EXPECT_EQ(Ops(all_ones) + Ops(1), Ops::from_words(1, 0));
  EXPECT_EQ(Ops::from_words(1, 0) - Ops(1), Ops(all_ones));
  EXPECT_LT(Ops(all_ones), Ops::from_words(1, 0));
  EXPECT_EQ(Ops(7) / 2, Ops(3));
}

TEST(Ops, ToDoubleIsExactBelow2To53) {
  RandomStream random(2);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = random.below(std::uint64_t{1} << 53);
    EXPECT_EQ(Ops(value).to_double(), static_cast<double>(value));
  }
  EXPECT_EQ(Ops::from_words(1, 0).to_double(), std::ldexp(1.0, 64));
}

}  // namespace
}  // namespace heteroperf
