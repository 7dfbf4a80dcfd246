// Exact test data.
//
// Rank r's element i is an integer of a few bits, drawn from a hash of (seed, r, i), times a power
// of two. The sum over all ranks of integers of b bits needs b + lg p bits, so b is chosen such
// that this fits into the bits that the type holds exactly: then no order of adding rounds. u8 sums
// wrap, which is exact as well.
#include "runners/comm/benchmark/collective_case.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

/// The bits of the largest integer up to which the type holds all integers.
int exact_bits(DataType type) {
  return with_type(type, [](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, BFloat16>) return 8;
    if constexpr (std::is_same_v<T, Float16>) return 11;
    return std::numeric_limits<T>::digits;
  });
}

/// One random word makes four elements of 16 bits.
constexpr int field_bits = 16;
constexpr std::size_t fields = 4;
/// Floating values have a fraction too; multiplying by a power of two changes no rounding.
constexpr double fraction = 0x1.0p-6;

/// The integers behind one rank's elements.
class Stream {
 public:
  Stream(const ExactValues& values, int rank) : key_(random_bits(values.seed, rank)) {
    // ranks · 2^(bits - 1) must not pass 2^exact_bits.
    const int room = exact_bits(values.type) - std::bit_width(std::uint32_t(values.ranks - 1));
    bits_ = std::clamp(room, 0, field_bits);
    // With more ranks than the type can count, only some of them contribute.
    if (room < 1) {
      const int stride = 1 << (1 - room);
      bits_ = rank % stride == 0 ? 1 : 0;
    }
    if (values.type == DataType::u8) bits_ = 8;
    is_signed_ = values.type != DataType::u8;
  }

  /// Calls work(i, integer) for the `count` elements from `first` on, with i from 0.
  template <class Work>
  void each(std::size_t first, std::size_t count, Work work) const {
    std::size_t i = 0;
    while (i < count) {
      const std::size_t element = first + i;
      std::uint64_t word = mix64(key_ ^ (element / fields)) >> (field_bits * (element % fields));
      const std::size_t stop = std::min(count, i + fields - element % fields);
      for (; i < stop; ++i, word >>= field_bits) work(i, integer(word));
    }
  }

 private:
  std::int64_t integer(std::uint64_t word) const {
    const auto magnitude = static_cast<std::int64_t>(word & ((std::uint64_t{1} << bits_) - 1));
    return is_signed_ ? magnitude - ((std::int64_t{1} << bits_) >> 1) : magnitude;
  }

  std::uint64_t key_;
  int bits_ = 0;
  bool is_signed_ = true;
};

template <class T>
constexpr bool is_floating = !std::is_integral_v<T>;

template <class T>
T from_integer(std::int64_t value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return static_cast<double>(value) * fraction;
  } else {
    return static_cast<T>(static_cast<float>(static_cast<double>(value) * fraction));
  }
}

/// Divides as the communicators do: integers towards zero, 16-bit floats in float32.
template <class T>
T average_of(std::int64_t sum, int ranks) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(sum / ranks);
  } else if constexpr (std::is_same_v<T, double>) {
    return from_integer<double>(sum) / ranks;
  } else {
    return static_cast<T>(from_integer<float>(sum) / static_cast<float>(ranks));
  }
}

constexpr std::size_t chunk = 4096;

void combine(Reduction reduction, std::int64_t& into, std::int64_t value) {
  if (reduction == Reduction::min) {
    into = std::min(into, value);
  } else if (reduction == Reduction::max) {
    into = std::max(into, value);
  } else {
    into += value;
  }
}

/// Maps a value to an integer so that neighbours of the type differ by one and order is kept.
template <class T>
std::int64_t position(T value) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::int64_t,
                                  std::conditional_t<sizeof(T) == 4, std::int32_t, std::int16_t>>;
  const auto bits = std::bit_cast<Bits>(value);
  return bits >= 0 ? bits : static_cast<std::int64_t>(std::numeric_limits<Bits>::min()) - bits;
}

template <class T>
double as_double(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(static_cast<float>(value));
  }
}

template <class T>
bool right(T got, T expected, const Tolerance& tolerance) {
  if constexpr (is_floating<T>) {
    const double a = as_double(got), b = as_double(expected);
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    if (std::abs(a - b) <= tolerance.absolute) return true;
    const std::int64_t steps = position(got) - position(expected);
    return std::abs(steps) <= tolerance.ulps;
  } else {
    return got == expected;
  }
}

}  // namespace

void ExactValues::fill(RankId rank, std::size_t first, MutableBuffer out) const {
  HETEROPERF_EXPECT(out.type == type && ranks > 0);
  const Stream stream(*this, rank.value());
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    T* values = static_cast<T*>(out.data);
    stream.each(first, out.count,
                [&](std::size_t i, std::int64_t n) { values[i] = from_integer<T>(n); });
  });
}

double ExactValues::largest() const {
  const int room = exact_bits(type) - std::bit_width(std::uint32_t(ranks - 1));
  const double integer = std::ldexp(1.0, std::clamp(room, 1, field_bits) - 1);
  return integer * (type == DataType::i32 || type == DataType::i64 ? 1 : fraction);
}

void ExactValues::fill_reduced(Reduction reduction, std::size_t first, MutableBuffer out) const {
  HETEROPERF_EXPECT(out.type == type && ranks > 0);
  std::int64_t sums[chunk];
  for (std::size_t begin = 0; begin < out.count; begin += chunk) {
    const std::size_t n = std::min(chunk, out.count - begin);
    Stream(*this, 0).each(first + begin, n, [&](std::size_t i, std::int64_t v) { sums[i] = v; });
    for (int r = 1; r < ranks; ++r) {
      Stream(*this, r).each(first + begin, n,
                            [&](std::size_t i, std::int64_t v) { combine(reduction, sums[i], v); });
    }
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      T* values = static_cast<T*>(out.data) + begin;
      for (std::size_t i = 0; i < n; ++i) {
        values[i] = reduction == Reduction::average ? average_of<T>(sums[i], ranks)
                                                    : from_integer<T>(sums[i]);
      }
    });
  }
}

Deviation& Deviation::operator+=(const Deviation& part) {
  wrong += part.wrong;
  largest = std::max(largest, part.largest);
  sum_of_squares += part.sum_of_squares;
  return *this;
}

Deviation deviation(ConstBuffer got, ConstBuffer expected, const Tolerance& tolerance) {
  HETEROPERF_EXPECT(got.count == expected.count && got.type == expected.type);
  Deviation sum;
  with_type(got.type, [&](auto zero) {
    using T = decltype(zero);
    const T* a = static_cast<const T*>(got.data);
    const T* b = static_cast<const T*>(expected.data);
    for (std::size_t i = 0; i < got.count; ++i) {
      if (!right(a[i], b[i], tolerance)) ++sum.wrong;
      const double difference = std::abs(as_double(a[i]) - as_double(b[i]));
      if (std::isnan(difference)) continue;
      sum.largest = std::max(sum.largest, difference);
      sum.sum_of_squares += difference * difference;
    }
  });
  return sum;
}

}  // namespace heteroperf
