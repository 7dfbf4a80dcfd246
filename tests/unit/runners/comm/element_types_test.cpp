#include "runners/comm/element_types.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "metrics/base/random.hpp"
#include "tests/unit/runners/comm/typed_values.hpp"

namespace heteroperf {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr DataType float_types[] = {DataType::f32, DataType::f64, DataType::bf16, DataType::f16};

// ---- conversions

/// The value of a half's bits by the definition of the format: sign, exponent, fraction.
template <int exponent_bits, int fraction_bits>
double by_definition(std::uint16_t bits) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits >> 15) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction != 0 ? nan : sign * INFINITY;
  const double digits = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  return sign * std::ldexp(digits, std::max(exponent, 1) - bias - fraction_bits);
}

template <class Half>
Half of_bits(int bits) {
  Half half;
  half.bits = static_cast<std::uint16_t>(bits);
  return half;
}

template <class Half, int exponent_bits, int fraction_bits>
void check_every_value() {
  int wrong_values = 0, wrong_round_trips = 0;
  for (int bits = 0; bits < 65536; ++bits) {
    const auto half = of_bits<Half>(bits);
    const auto value = static_cast<float>(half);
    const double expected = by_definition<exponent_bits, fraction_bits>(half.bits);
    if (std::isnan(expected)) {
      wrong_values += !std::isnan(value);
      wrong_round_trips += !std::isnan(static_cast<float>(Half(value)));
    } else {
      wrong_values += static_cast<double>(value) != expected;
      wrong_round_trips += !(Half(value) == half);
    }
  }
  EXPECT_EQ(wrong_values, 0);
  EXPECT_EQ(wrong_round_trips, 0);
}

TEST(HalfTypes, EveryValueIsAsDefined) {
  check_every_value<BFloat16, 8, 7>();
  check_every_value<Float16, 5, 10>();
}

/// Halfway between two neighbours the even one is nearest; a little more or less decides.
template <class Half>
void check_rounding(int largest_finite) {
  int wrong = 0;
  for (int bits = 0; bits < largest_finite; ++bits) {
    const double low = static_cast<float>(of_bits<Half>(bits));
    const double high = static_cast<float>(of_bits<Half>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    if (static_cast<double>(middle) != (low + high) / 2) continue;  // below float32's smallest
    wrong += Half(middle).bits != bits + bits % 2;
    wrong += Half(std::nextafter(middle, 0.0F)).bits != bits;
    wrong += Half(std::nextafter(middle, INFINITY)).bits != bits + 1;
    wrong += Half(-middle).bits != (bits + bits % 2) + 0x8000;
  }
  EXPECT_EQ(wrong, 0);
}

TEST(HalfTypes, RoundToNearestTiesToEven) {
  check_rounding<BFloat16>(0x7f7f);
  check_rounding<Float16>(0x7bff);
}

TEST(HalfTypes, BeyondTheLargestIsInfinite) {
  EXPECT_EQ(static_cast<float>(Float16(65504.0F)), 65504.0F);
  EXPECT_EQ(static_cast<float>(Float16(65519.0F)), 65504.0F);
  EXPECT_EQ(static_cast<float>(Float16(65520.0F)), INFINITY);
  EXPECT_EQ(static_cast<float>(Float16(-1e30F)), -INFINITY);
  EXPECT_EQ(static_cast<float>(BFloat16(std::numeric_limits<float>::max())), INFINITY);
}

TEST(HalfTypes, NanStaysNan) {
  for (std::uint32_t bits : {0x7f800001U, 0x7fffffffU, 0xff800001U, 0x7fc00000U}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(bits)))));
    EXPECT_TRUE(std::isnan(static_cast<float>(Float16(std::bit_cast<float>(bits)))));
  }
}

// ---- reductions

/// Reduces the sources into as many results as asked for; all must be the same.
TypedValues reduced_by(const std::vector<TypedValues>& sources, Reduction reduction,
                       std::size_t results) {
  std::vector<const void*> from;
  for (const TypedValues& source : sources) from.push_back(source.buffer().data);
  std::vector<TypedValues> to(results, {sources[0].type(), sources[0].count()});
  std::vector<void*> destinations;
  for (TypedValues& one : to) destinations.push_back(one.buffer().data);
  reduce_in_order(from, destinations, sources[0].count(), sources[0].type(), reduction);
  for (const TypedValues& one : to) EXPECT_EQ(one.bytes(), to[0].bytes());
  return to[0];
}

TEST(ReduceInOrder, EveryTypeReductionAndNumberOfSources) {
  for (DataType type : all_types) {
    for (Reduction reduction : all_reductions) {
      for (int ranks : {1, 2, 3, 5, 8}) {
        for (std::size_t count : {0, 1, 7, 1023, 1024, 3001}) {
          std::vector<TypedValues> sources;
          for (int r = 0; r < ranks; ++r) sources.push_back(samples(type, r, count));
          const auto expected = [&](std::size_t i) { return reduced(type, ranks, i, reduction); };
          const TypedValues result = reduced_by(sources, reduction, ranks == 3 ? 1 : 2);
          EXPECT_EQ(result.wrong(expected, tolerance(type, ranks, reduction)), 0u)
              << to_string(type) << " ranks " << ranks << " count " << count;
        }
      }
    }
  }
}

/// 256 + 1 + 1 is 256 when every step is rounded to bf16, and 258 when the sum is.
TEST(ReduceInOrder, SumsOfHalvesAreRoundedOnce) {
  const auto constant = [](DataType type, double value) {
    return TypedValues(type, 40, [=](std::size_t) { return value; });
  };
  for (DataType type : {DataType::bf16, DataType::f16}) {
    const double big = type == DataType::bf16 ? 256 : 2048;
    const std::vector<TypedValues> sources{constant(type, big), constant(type, 1),
                                           constant(type, 1)};
    EXPECT_EQ(reduced_by(sources, Reduction::sum, 1)[39], big + 2) << to_string(type);
    // The largest number, five times: no infinity on the way to the average.
    const double largest = type == DataType::bf16 ? 0x1.fep+120 : 65504;
    const std::vector<TypedValues> same(5, constant(type, largest));
    EXPECT_EQ(reduced_by(same, Reduction::average, 2)[0], largest) << to_string(type);
  }
}

/// One NaN among the sources is never lost, whoever has it; other elements do not change.
TEST(ReduceInOrder, NanIsKept) {
  for (DataType type : float_types) {
    for (Reduction reduction : all_reductions) {
      for (int ranks : {2, 3, 5}) {
        for (int who = 0; who < ranks; ++who) {
          std::vector<TypedValues> sources;
          for (int r = 0; r < ranks; ++r) sources.push_back(samples(type, r, 67));
          sources[static_cast<std::size_t>(who)].fill(33, 1, [](std::size_t) { return nan; });
          TypedValues result = reduced_by(sources, reduction, 1);
          EXPECT_TRUE(std::isnan(result[33])) << to_string(type) << " rank " << who;
          result.fill(33, 1, [&](std::size_t) { return reduced(type, ranks, 33, reduction); });
          const auto expected = [&](std::size_t i) { return reduced(type, ranks, i, reduction); };
          EXPECT_EQ(result.wrong(expected, tolerance(type, ranks, reduction)), 0u);
        }
      }
    }
  }
}

TEST(ReduceInOrder, InfinitiesAreNumbers) {
  for (DataType type : float_types) {
    const TypedValues low(type, 1, [](std::size_t) { return -INFINITY; });
    const TypedValues high(type, 1, [](std::size_t) { return INFINITY; });
    EXPECT_EQ(reduced_by({low, high}, Reduction::max, 1)[0], INFINITY);
    EXPECT_EQ(reduced_by({low, high}, Reduction::min, 1)[0], -INFINITY);
    EXPECT_TRUE(std::isnan(reduced_by({low, high}, Reduction::sum, 1)[0]));
  }
}

TEST(ReduceInOrder, IntegersWrapAndAveragesDoNot) {
  const std::int32_t largest = std::numeric_limits<std::int32_t>::max();
  const std::vector<std::int32_t> a(3, largest), b(3, largest - 2);
  std::vector<std::int32_t> result(3);
  const void* sources[] = {a.data(), b.data()};
  void* destination = result.data();
  reduce_in_order(sources, {&destination, 1}, 3, DataType::i32, Reduction::sum);
  EXPECT_EQ(result[2], -4);
  reduce_in_order(sources, {&destination, 1}, 3, DataType::i32, Reduction::average);
  EXPECT_EQ(result[0], largest - 1);
}

/// The bits do not depend on where a block or vector begins.
TEST(ReduceInOrder, OrderIsTheSources) {
  constexpr std::size_t count = 5003;
  std::vector<std::vector<float>> sources(4, std::vector<float>(count));
  std::vector<const void*> from;
  for (std::size_t r = 0; r < sources.size(); ++r) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto bits = random_bits(11, r, i);
      sources[r][i] =
          std::ldexp(static_cast<float>(to_unit(bits) - 0.5), static_cast<int>(bits % 24));
    }
    from.push_back(sources[r].data());
  }
  std::vector<float> result(count);
  void* destination = result.data();
  reduce_in_order(from, {&destination, 1}, count, DataType::f32, Reduction::sum);
  for (std::size_t i = 0; i < count; ++i) {
    const float expected = ((sources[0][i] + sources[1][i]) + sources[2][i]) + sources[3][i];
    ASSERT_EQ(result[i], expected) << i;
  }
}

TEST(ElementTypes, NamesAndSizes) {
  for (DataType type : all_types) {
    with_type(type, [&](auto zero) {
      EXPECT_EQ(size_of(type), sizeof zero);
      EXPECT_EQ(data_type_of<decltype(zero)>(), type);
    });
  }
  EXPECT_STREQ(to_string(DataType::bf16), "bf16");
  EXPECT_EQ(describe("send", {nullptr, 5, DataType::f16}), "send of 5 f16");
}

}  // namespace
}  // namespace heteroperf
