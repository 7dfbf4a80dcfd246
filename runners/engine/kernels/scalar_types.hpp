#pragma once

#include <cstdint>
#include <type_traits>

// Included by variant.cpp, once per instruction set, by reference.cpp and by cuda/table.cu;
// everything here is local to the including file.
#if defined(__CUDACC__)
#define HETEROPERF_KERNEL __host__ __device__ __forceinline__
// Only threads of a device call it there.
#define HETEROPERF_THREAD __device__ __forceinline__
#define HETEROPERF_INLINED
// A kernel's function, which skeletons call: HETEROPERF_FUNCTION(A x, A& y) { y = -x; }
#define HETEROPERF_FUNCTION(...) [=] __device__(__VA_ARGS__)
#else
#define HETEROPERF_KERNEL [[gnu::always_inline]] inline
#define HETEROPERF_THREAD HETEROPERF_KERNEL
#define HETEROPERF_INLINED __attribute__((always_inline))
#define HETEROPERF_FUNCTION(...) [=](__VA_ARGS__) __attribute__((always_inline))
#endif

namespace heteroperf {
namespace {

/// The upper half of a float: its sign, all of its exponent, and 7 bits of its fraction.
struct Bf16 {
  std::uint16_t bits;
};

/// The type in which statistics and sums of values of type T are kept in memory.
template <class T>
using Kept = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Bits of as many bytes as a T.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;

/// The type in which values of type T are computed and summed.
#if defined(HETEROPERF_REFERENCE_KERNELS)
template <class T>
using Acc = double;
#else
template <class T>
using Acc = Kept<T>;
#endif

HETEROPERF_KERNEL Acc<float> widen(float value) { return value; }
HETEROPERF_KERNEL double widen(double value) { return value; }
/// Exact: every bfloat16 is a float.
HETEROPERF_KERNEL Acc<Bf16> widen(Bf16 value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16);
}
/// Indices, bits and numbers of taps are no quantities.
template <class I>
requires std::is_integral_v<I> HETEROPERF_KERNEL I widen(I value) { return value; }

// Round to nearest even; a NaN stays one because its quiet bit is kept.
HETEROPERF_KERNEL Bf16 round_to_bf16(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  return {static_cast<std::uint16_t>(value != value ? quiet : rounded)};
}

/// The element type's nearest value to a computed one.
template <class T, class A>
HETEROPERF_KERNEL T narrow(A value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return round_to_bf16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}
/// A computed value as memory of the element type would give it back.
template <class T, class A>
HETEROPERF_KERNEL A rounded(A value) {
  return widen(narrow<T>(value));
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
