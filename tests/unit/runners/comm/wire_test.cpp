#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/comm/buffer.hpp"
#include "runners/comm/wire/wire_codec.hpp"

namespace heteroperf {
namespace {

constexpr WireFormat formats[] = {WireFormat::fp32, WireFormat::bf16, WireFormat::int8};
constexpr std::size_t counts[] = {0, 1, 2, 7, 255, 256, 257, 511, 512, 513, 5000};
constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<float> random_values(std::uint64_t seed, std::size_t count, int min_exponent,
                                 int max_exponent) {
  RandomStream random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const auto range = static_cast<std::uint64_t>(max_exponent - min_exponent + 1);
    const int exponent = min_exponent + static_cast<int>(random.below(range));
    value = static_cast<float>(std::ldexp(random.unit() * 2 - 1, exponent));
  }
  return values;
}

std::vector<std::byte> encoded(WireFormat format, const std::vector<float>& values) {
  // A guard shows writes past the end.
  std::vector<std::byte> wire(wire_bytes(format, values.size()) + 1, std::byte{0x5a});
  encode(format, values, wire.data());
  EXPECT_EQ(wire.back(), std::byte{0x5a});
  wire.pop_back();
  return wire;
}

std::vector<float> decoded(WireFormat format, const std::vector<std::byte>& wire,
                           std::size_t count) {
  std::vector<float> values(count, -7.0F);
  decode(format, wire.data(), values);
  return values;
}

std::vector<float> over_the_wire(WireFormat format, const std::vector<float>& values) {
  return decoded(format, encoded(format, values), values.size());
}

TEST(WireBytes, AreThoseOfTheFormulas) {
  for (std::size_t n : counts) {
    EXPECT_EQ(wire_bytes(WireFormat::fp32, n), 4 * n);
    EXPECT_EQ(wire_bytes(WireFormat::bf16, n), 2 * n);
    EXPECT_EQ(wire_bytes(WireFormat::int8, n), n + 4 * ((n + 255) / 256));
  }
}

TEST(Fp32Wire, IsExact) {
  for (std::size_t n : counts) {
    const auto values = random_values(n, n, -120, 120);
    EXPECT_EQ(over_the_wire(WireFormat::fp32, values), values);
  }
}

TEST(Bf16Wire, KeepsEightBits) {
  for (std::size_t n : counts) {
    const auto values = random_values(n + 1, n, -120, 126);
    const auto back = over_the_wire(WireFormat::bf16, values);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_LE(std::abs(double{back[i]} - values[i]),
                std::max(std::abs(double{values[i]}) * 0x1p-8, 0x1p-134));
    }
  }
}

TEST(Bf16Wire, RoundsAsTheTypeDoes) {
  auto values = random_values(3, 4000, -140, 127);
  for (float special : {0.0F, -0.0F, infinity, -infinity, 1e-45F, 1.0F + 0x1p-8F, 1.0F + 0x3p-8F,
                        std::numeric_limits<float>::max()}) {
    values.push_back(special);
  }
  const auto back = over_the_wire(WireFormat::bf16, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(back[i]),
              std::bit_cast<std::uint32_t>(static_cast<float>(BFloat16(values[i]))))
        << values[i];
  }
}

TEST(Bf16Wire, NotANumberStaysSo) {
  for (std::uint32_t bits : {0x7f800001U, 0x7fc00000U, 0x7fffffffU, 0xff800001U, 0xffffffffU}) {
    EXPECT_TRUE(std::isnan(over_the_wire(WireFormat::bf16, {std::bit_cast<float>(bits)})[0]));
  }
}

/// The largest magnitude in the block of element i.
float absmax_around(const std::vector<float>& values, std::size_t i) {
  const std::size_t begin = i / wire_block * wire_block;
  float largest = 0;
  for (std::size_t k = begin; k < std::min(values.size(), begin + wire_block); ++k) {
    largest = std::max(largest, std::abs(values[k]));
  }
  return largest;
}

/// Half a step; scale and product are rounded to float32 themselves. Tiny blocks become zero.
double int8_bound(float absmax) {
  if (absmax < 127 * std::numeric_limits<float>::min()) return absmax;
  return double{absmax} / 254 * (1 + 0x1p-14);
}

TEST(Int8Wire, IsWithinHalfAStepOfItsBlock) {
  for (int max_exponent : {-110, -20, 0, 3, 60, 127}) {
    for (std::size_t n : counts) {
      const auto values = random_values(n + 2, n, max_exponent - 12, max_exponent);
      const auto back = over_the_wire(WireFormat::int8, values);
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_LE(std::abs(double{back[i]} - values[i]), int8_bound(absmax_around(values, i)))
            << n << " element " << i << " of 2^" << max_exponent;
      }
    }
  }
}

TEST(Int8Wire, BlocksDoNotTouchEachOther) {
  std::vector<float> values(3 * wire_block, 1.0F);
  values[wire_block + 9] = 1e30F;
  values[2 * wire_block + 200] = std::numeric_limits<float>::quiet_NaN();
  const auto back = over_the_wire(WireFormat::int8, values);
  for (std::size_t i = 0; i < wire_block; ++i) {
    EXPECT_EQ(back[i], 1.0F);
    EXPECT_TRUE(std::isnan(back[2 * wire_block + i]));
  }
  EXPECT_EQ(back[wire_block + 9], 1e30F);
}

TEST(Int8Wire, InfinityMakesItsBlockNotANumber) {
  for (float special : {infinity, -infinity}) {
    for (float value : over_the_wire(WireFormat::int8, {1.0F, special, 0.0F})) {
      EXPECT_TRUE(std::isnan(value));
    }
  }
}

TEST(Int8Wire, ZerosAndTinyBlocksAreZero) {
  for (float tiny : {0.0F, -0.0F, 1e-45F, 1e-38F}) {
    for (float value : over_the_wire(WireFormat::int8, {tiny, -tiny, tiny})) EXPECT_EQ(value, 0.0F);
  }
  const float large = std::numeric_limits<float>::max();
  EXPECT_NEAR(over_the_wire(WireFormat::int8, {large})[0] / large, 1, 1e-6);
}

TEST(Int8Wire, WholeMultiplesOfTheScaleAreExact) {
  std::vector<float> values;
  for (int k = -127; k <= 127; ++k) values.push_back(static_cast<float>(k) * 0.25F);
  EXPECT_EQ(over_the_wire(WireFormat::int8, values), values);
}

/// On every machine and with every compiler: the bits are part of the format.
TEST(Wire, BitsAreFixed) {
  const auto values = random_values(99, 1000, -8, 8);
  const auto checksum = [&](WireFormat format) {
    std::uint64_t sum = 0;
    for (std::byte b : encoded(format, values)) sum = mix64(sum ^ static_cast<std::uint64_t>(b));
    for (float value : over_the_wire(format, values)) {
      sum = mix64(sum ^ std::bit_cast<std::uint32_t>(value));
    }
    return sum;
  };
  EXPECT_EQ(checksum(WireFormat::bf16), 3220660096808448748u);
  EXPECT_EQ(checksum(WireFormat::int8), 1481233138934334219u);
}

TEST(Wire, AddingIsDecodingAndAdding) {
  for (WireFormat format : formats) {
    for (std::size_t n : counts) {
      const auto wire = encoded(format, random_values(n + 3, n, -4, 4));
      auto sums = random_values(n + 4, n, -4, 4);
      auto expected = sums;
      const auto values = decoded(format, wire, n);
      for (std::size_t i = 0; i < n; ++i) expected[i] += values[i];
      decode_add(format, wire.data(), sums);
      EXPECT_EQ(sums, expected) << to_string(format) << " count " << n;
    }
  }
}

}  // namespace
}  // namespace heteroperf
