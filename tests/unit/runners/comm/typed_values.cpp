#include "tests/unit/runners/comm/typed_values.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

template <class T>
double as_double(T value) {
  if constexpr (std::is_class_v<T>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <class T>
T from_double(double value) {
  if constexpr (std::is_class_v<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

bool is_integer(DataType type) {
  return type == DataType::i32 || type == DataType::i64 || type == DataType::u8;
}

/// One unit in the last place of 1.
double epsilon(DataType type) {
  if (type == DataType::f32) return 0x1p-23;
  if (type == DataType::f64) return 0x1p-52;
  if (type == DataType::bf16) return 0x1p-7;
  return type == DataType::f16 ? 0x1p-10 : 0.0;
}

}  // namespace

void TypedValues::fill(std::size_t begin, std::size_t count, const Formula& formula) {
  with_type(type_, [&](auto zero) {
    using T = decltype(zero);
    T* values = reinterpret_cast<T*>(bytes_.data()) + begin;
    for (std::size_t i = 0; i < count; ++i) values[i] = from_double<T>(formula(i));
  });
}

double TypedValues::operator[](std::size_t i) const {
  double value = 0;
  with_type(type_, [&](auto zero) {
    using T = decltype(zero);
    value = as_double(reinterpret_cast<const T*>(bytes_.data())[i]);
  });
  return value;
}

std::size_t TypedValues::wrong(const Formula& formula, double tolerance) const {
  std::size_t found = 0;
  with_type(type_, [&](auto zero) {
    using T = decltype(zero);
    const T* values = reinterpret_cast<const T*>(bytes_.data());
    for (std::size_t i = 0; i < count(); ++i) {
      const double expected = formula(i);
      found += !(std::abs(as_double(values[i]) - expected) <= tolerance * std::abs(expected));
    }
  });
  return found;
}

double sample(DataType type, int rank, std::size_t i) {
  const auto value = static_cast<double>(random_bits(7, rank, i) % 23);
  return type == DataType::u8 ? value : value - 11;
}

TypedValues samples(DataType type, int rank, std::size_t count) {
  return {type, count, [=](std::size_t i) { return sample(type, rank, i); }};
}

double reduced(DataType type, int ranks, std::size_t i, Reduction reduction) {
  double result = sample(type, 0, i);
  for (int r = 1; r < ranks; ++r) {
    const double next = sample(type, r, i);
    if (reduction == Reduction::min) {
      result = std::min(result, next);
    } else if (reduction == Reduction::max) {
      result = std::max(result, next);
    } else {
      result += next;
    }
  }
  if (reduction != Reduction::average) return result;
  return is_integer(type) ? std::trunc(result / ranks) : result / ranks;
}

double tolerance(DataType type, int ranks, Reduction reduction) {
  if (reduction != Reduction::average) return 0;
  return std::has_single_bit(static_cast<unsigned>(ranks)) ? 0 : 2 * epsilon(type);
}

}  // namespace heteroperf
