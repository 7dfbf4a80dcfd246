#include "metrics/base/hash.hpp"

#include <gtest/gtest.h>

#include <set>

namespace heteroperf {
namespace {

TEST(Hash128, IsThirtyTwoHexadecimalDigits) {
  const std::string hex = Hash128("x").update(1).hex();
  EXPECT_EQ(hex.size(), 32u);
  EXPECT_EQ(hex.find_first_not_of("0123456789abcdef"), std::string::npos);
}

// A change of these digits would orphan every stored graph hash.
TEST(Hash128, DigitsAreTheSameOnEveryMachine) {
  EXPECT_EQ(Hash128("heteroperf").update(42).update(2.5).update("end").hex(),
            "1d3af4af481d140b59ce3562e5d16050");
}

TEST(Hash128, FieldsDoNotRunIntoEachOther) {
  EXPECT_NE(Hash128().update("ab").update("c"), Hash128().update("a").update("bc"));
  EXPECT_NE(Hash128().update(""), Hash128());
  EXPECT_NE(Hash128().update(std::string_view("a\0", 2)), Hash128().update("a"));
  EXPECT_NE(Hash128().update(1).update(2), Hash128().update(2).update(1));
}

TEST(Hash128, BothZerosAreEqualAndOtherDoublesAreNot) {
  EXPECT_EQ(Hash128().update(0.0), Hash128().update(-0.0));
  EXPECT_NE(Hash128().update(1.0), Hash128().update(1.0 + 1e-15));
}

TEST(Hash128, NearbyNumbersDoNotCollide) {
  std::set<std::string> seen;
  for (int a = 0; a < 100; ++a) {
    for (int b = 0; b < 100; ++b) seen.insert(Hash128().update(a).update(b).hex());
  }
  EXPECT_EQ(seen.size(), 10000u);
}

}  // namespace
}  // namespace heteroperf
