#include "runners/comm/element_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace heteroperf {
namespace {

/// Elements combined at a time: the accumulators stay in the first-level cache.
constexpr std::size_t block_size = 1024;

/// Signed overflow is undefined, so integers add as unsigned and come back.
template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

template <Reduction reduction, class T>
T combine(T a, T b) {
  if constexpr (reduction == Reduction::min) return b < a ? b : a;
  if constexpr (reduction == Reduction::max) return a < b ? b : a;
  return add(a, b);
}

/// The gradients of two ranks: one pass, no accumulators.
template <class T, class Sum, Reduction reduction>
void combine_two(const T* a, const T* b, T* first, T* second, std::size_t count) {
  // A destination is a source itself or does not overlap it.
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    Sum value = combine<reduction>(static_cast<Sum>(a[i]), static_cast<Sum>(b[i]));
    if constexpr (reduction == Reduction::average) value /= 2;
    first[i] = static_cast<T>(value);
    second[i] = static_cast<T>(value);
  }
}

template <class T, class Sum, Reduction reduction>
class Reducer {
 public:
  Reducer(std::span<const void* const> sources, std::span<void* const> destinations)
      : sources_(sources), destinations_(destinations) {}

  void run(std::size_t count) {
    if (sources_.size() == 2 && destinations_.size() == 2) {
      return combine_two<T, Sum, reduction>(source(0), source(1), destination(0), destination(1),
                                            count);
    }
    for (std::size_t begin = 0; begin < count; begin += block_size) {
      const std::size_t n = std::min(block_size, count - begin);
      accumulate(begin, n);
      store(begin, n);
    }
  }

 private:
  const T* source(std::size_t i) const { return static_cast<const T*>(sources_[i]); }
  T* destination(std::size_t i) const { return static_cast<T*>(destinations_[i]); }

  void accumulate(std::size_t begin, std::size_t n) {
    const T* first = source(0) + begin;
    for (std::size_t i = 0; i < n; ++i) sum_[i] = static_cast<Sum>(first[i]);
    for (std::size_t rank = 1; rank < sources_.size(); ++rank) {
      const T* next = source(rank) + begin;
      for (std::size_t i = 0; i < n; ++i) {
        sum_[i] = combine<reduction>(sum_[i], static_cast<Sum>(next[i]));
      }
    }
  }

  void store(std::size_t begin, std::size_t n) {
    if constexpr (reduction == Reduction::average) {
      const Sum ranks = static_cast<Sum>(sources_.size());
      for (std::size_t i = 0; i < n; ++i) sum_[i] /= ranks;
    }
    for (std::size_t k = 0; k < destinations_.size(); ++k) {
      T* values = destination(k) + begin;
      for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<T>(sum_[i]);
    }
  }

  std::span<const void* const> sources_;
  std::span<void* const> destinations_;
  alignas(64) std::array<Sum, block_size> sum_;
};

template <class T>
void reduce_typed(std::span<const void* const> sources, std::span<void* const> destinations,
                  std::size_t count, Reduction reduction) {
  using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
  switch (reduction) {
    case Reduction::sum:
      return Reducer<T, T, Reduction::sum>(sources, destinations).run(count);
    case Reduction::min:
      return Reducer<T, T, Reduction::min>(sources, destinations).run(count);
    case Reduction::max:
      return Reducer<T, T, Reduction::max>(sources, destinations).run(count);
    case Reduction::average:
      return Reducer<T, Wide, Reduction::average>(sources, destinations).run(count);
  }
}

}  // namespace

std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::f32:
      return sizeof(float);
    case DataType::f64:
      return sizeof(double);
    case DataType::i32:
      return sizeof(std::int32_t);
    case DataType::i64:
      return sizeof(std::int64_t);
    case DataType::u8:
      return sizeof(std::uint8_t);
  }
  return 0;
}

const char* to_string(DataType type) {
  switch (type) {
    case DataType::f32:
      return "f32";
    case DataType::f64:
      return "f64";
    case DataType::i32:
      return "i32";
    case DataType::i64:
      return "i64";
    case DataType::u8:
      return "u8";
  }
  return "?";
}

std::string describe(const char* operation, ConstBuffer values) {
  return fmt::format("{} of {} {}", operation, values.count, to_string(values.type));
}

void reduce_in_order(std::span<const void* const> sources, std::span<void* const> destinations,
                     std::size_t count, DataType type, Reduction reduction) {
  switch (type) {
    case DataType::f32:
      return reduce_typed<float>(sources, destinations, count, reduction);
    case DataType::f64:
      return reduce_typed<double>(sources, destinations, count, reduction);
    case DataType::i32:
      return reduce_typed<std::int32_t>(sources, destinations, count, reduction);
    case DataType::i64:
      return reduce_typed<std::int64_t>(sources, destinations, count, reduction);
    case DataType::u8:
      return reduce_typed<std::uint8_t>(sources, destinations, count, reduction);
  }
}

}  // namespace heteroperf
