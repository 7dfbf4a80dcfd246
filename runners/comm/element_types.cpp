#include "runners/comm/element_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "metrics/base/name_table.hpp"

// A reduction takes the vectors of several ranks and combines them element by element. Here the
// order is always that of the ranks, so that the bits of a sum do not depend on how the work is
// split. Two vectors take one pass, without any storage between. More are combined block by block:
// the first one is loaded into an accumulator of the wider type `Sum` (float32 for halves, 64 bits
// for averages of integers), the others are added to it, and the block is rounded and stored once.
// The loops are written so that compilers turn them into vector instructions.

namespace heteroperf {
namespace {

/// The number of elements combined at a time: the accumulators stay in the first-level cache.
constexpr std::size_t block_size = 1024;

/// Integers add as unsigned numbers, because signed overflow is undefined.
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
  if constexpr (reduction == Reduction::sum || reduction == Reduction::average) return add(a, b);
  bool take = reduction == Reduction::min ? b < a : a < b;
  // A single NaN makes the result NaN. One in `a` stays, because no comparison with it is true.
  if constexpr (std::is_floating_point_v<T>) take = take | (b != b);
  return take ? b : a;
}

/// The type that loops load and store. For halves it is their bits, since loops over structures do
/// not become vector instructions.
template <class T>
using Stored = std::conditional_t<std::is_class_v<T>, std::uint16_t, T>;

template <class T, class Sum>
Sum load(Stored<T> stored) {
  if constexpr (std::is_class_v<T>) {
    T value;
    value.bits = stored;
    return static_cast<Sum>(value);
  } else {
    return static_cast<Sum>(stored);
  }
}

template <class T, class Sum>
Stored<T> store(Sum sum) {
  if constexpr (std::is_class_v<T>) {
    return T(sum).bits;
  } else {
    return static_cast<T>(sum);
  }
}

template <class T, class Sum, Reduction reduction>
Stored<T> combined(Stored<T> a, Stored<T> b) {
  Sum value = combine<reduction>(load<T, Sum>(a), load<T, Sum>(b));
  if constexpr (reduction == Reduction::average) value /= 2;
  return store<T, Sum>(value);
}

template <class T, class Sum, Reduction reduction>
void combine_into(const Stored<T>* a, const Stored<T>* b, Stored<T>* into, std::size_t count) {
  // The destination is a source itself or does not overlap it.
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) into[i] = combined<T, Sum, reduction>(a[i], b[i]);
}

/// The common case of the gradients of two ranks takes one pass and no accumulators.
template <class T, class Sum, Reduction reduction>
void combine_two(const Stored<T>* a, const Stored<T>* b, Stored<T>* first, Stored<T>* second,
                 std::size_t count) {
  // Each destination is a source itself or does not overlap it.
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const Stored<T> result = combined<T, Sum, reduction>(a[i], b[i]);
    first[i] = result;
    second[i] = result;
  }
}

template <class T, class Sum, Reduction reduction>
void accumulate(const Stored<T>* __restrict next, Sum* __restrict sum, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] = combine<reduction>(sum[i], load<T, Sum>(next[i]));
  }
}

/// Reduces vectors of T with accumulators of type Sum.
template <class T, class Sum, Reduction reduction>
class Reducer {
 public:
  Reducer(std::span<const void* const> sources, std::span<void* const> destinations)
      : sources_(sources), destinations_(destinations) {}

  void run(std::size_t count) {
    if (sources_.size() == 2 && destinations_.size() == 1) {
      return combine_into<T, Sum, reduction>(source(0), source(1), destination(0), count);
    }
    if (sources_.size() == 2 && destinations_.size() == 2) {
      return combine_two<T, Sum, reduction>(source(0), source(1), destination(0), destination(1),
                                            count);
    }
    for (std::size_t begin = 0; begin < count; begin += block_size) {
      const std::size_t n = std::min(block_size, count - begin);
      start(begin, n);
      for (std::size_t rank = 1; rank < sources_.size(); ++rank) {
        accumulate<T, Sum, reduction>(source(rank) + begin, sum_.data(), n);
      }
      finish(begin, n);
    }
  }

 private:
  using Element = Stored<T>;

  const Element* source(std::size_t i) const { return static_cast<const Element*>(sources_[i]); }
  Element* destination(std::size_t i) const { return static_cast<Element*>(destinations_[i]); }

  void start(std::size_t begin, std::size_t n) {
    const Element* __restrict first = source(0) + begin;
    Sum* __restrict sum = sum_.data();
    for (std::size_t i = 0; i < n; ++i) sum[i] = load<T, Sum>(first[i]);
  }

  /// Rounds the block once into the first destination and copies it to the others.
  void finish(std::size_t begin, std::size_t n) {
    Sum* __restrict sum = sum_.data();
    if constexpr (reduction == Reduction::average) {
      const Sum ranks = static_cast<Sum>(sources_.size());
      for (std::size_t i = 0; i < n; ++i) sum[i] /= ranks;
    }
    if (destinations_.empty()) return;
    Element* __restrict result = destination(0) + begin;
    for (std::size_t i = 0; i < n; ++i) result[i] = store<T, Sum>(sum[i]);
    for (std::size_t k = 1; k < destinations_.size(); ++k) {
      std::memmove(destination(k) + begin, result, n * sizeof(Element));
    }
  }

  std::span<const void* const> sources_;
  std::span<void* const> destinations_;
  alignas(64) std::array<Sum, block_size> sum_;
};

/// Chooses the accumulator's type: float32 for halves, 64 bits for averages of integers.
template <class T>
void reduce_typed(std::span<const void* const> sources, std::span<void* const> destinations,
                  std::size_t count, Reduction reduction) {
  using Sum = std::conditional_t<std::is_class_v<T>, float, T>;
  using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, Sum>;
  switch (reduction) {
    case Reduction::sum:
      return Reducer<T, Sum, Reduction::sum>(sources, destinations).run(count);
    case Reduction::min:
      return Reducer<T, Sum, Reduction::min>(sources, destinations).run(count);
    case Reduction::max:
      return Reducer<T, Sum, Reduction::max>(sources, destinations).run(count);
    case Reduction::average:
      return Reducer<T, Wide, Reduction::average>(sources, destinations).run(count);
  }
}

}  // namespace

DataType parse_data_type(const std::string& text) {
  return parse_value_name<DataType>("type", text);
}

std::string describe(const char* operation, ConstBuffer values) {
  return fmt::format("{} of {} {}", operation, values.count, to_string(values.type));
}

void reduce_in_order(std::span<const void* const> sources, std::span<void* const> destinations,
                     std::size_t count, DataType type, Reduction reduction) {
  with_type(type, [&](auto zero) {
    reduce_typed<decltype(zero)>(sources, destinations, count, reduction);
  });
}

}  // namespace heteroperf
