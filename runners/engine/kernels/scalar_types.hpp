#pragma once

#include <cstdint>
#include <type_traits>

// Included by variant.cpp, once per instruction set, by cuda/table.cu and by the optimizer's
// kernels; everything here is local to the including file.
#if defined(__CUDACC__)
#define HETEROPERF_KERNEL __host__ __device__ __forceinline__
#else
#define HETEROPERF_KERNEL [[gnu::always_inline]] inline
#endif

namespace heteroperf {
namespace {

/// The upper half of a float: its sign, all of its exponent, and 7 bits of its fraction.
struct Bf16 {
  std::uint16_t bits;
};

/// The type in which values of type T are computed and summed.
template <class T>
using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;

HETEROPERF_KERNEL float widen(float value) { return value; }
HETEROPERF_KERNEL double widen(double value) { return value; }
/// Exact: every bfloat16 is a float.
HETEROPERF_KERNEL float widen(Bf16 value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16);
}

// Round to nearest even; a NaN stays one because its quiet bit is kept.
HETEROPERF_KERNEL Bf16 round_to_bf16(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  return {static_cast<std::uint16_t>(value != value ? quiet : rounded)};
}

/// The element type's nearest value to a computed one.
template <class T>
HETEROPERF_KERNEL T narrow(Acc<T> value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return round_to_bf16(value);
  } else {
    return value;
  }
}

template <class T>
HETEROPERF_KERNEL const T* as(const void* data) {
  return static_cast<const T*>(data);
}
template <class T>
HETEROPERF_KERNEL T* as(void* data) {
  return static_cast<T*>(data);
}

}  // namespace
}  // namespace heteroperf
