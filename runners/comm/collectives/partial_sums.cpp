// Element-wise work on partial sums: combining, converting, dividing and rounding.
#include "runners/comm/collectives/partial_sums.hpp"

#include <array>
#include <cstring>
#include <type_traits>

#include "metrics/base/error.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

template <class T>
constexpr bool is_half = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

template <class From, class To>
void convert_each(const From* from, To* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
}

}  // namespace

DataType partial_type(DataType type, Reduction reduction) {
  const bool is_half_type = type == DataType::bf16 || type == DataType::f16;
  const bool is_narrow_integer = type == DataType::i32 || type == DataType::u8;
  if (is_half_type && undivided(reduction) == Reduction::sum) return DataType::f32;
  if (is_narrow_integer && reduction == Reduction::average) return DataType::i64;
  return type;
}

void combine(ConstBuffer first, ConstBuffer second, void* into, Reduction reduction) {
  HETEROPERF_EXPECT(first.type == second.type && first.count == second.count);
  const std::array<const void*, 2> sources{first.data, second.data};
  reduce_in_order(sources, {&into, 1}, first.count, first.type, undivided(reduction));
}

void convert(ConstBuffer from, MutableBuffer to) {
  HETEROPERF_EXPECT(from.count == to.count);
  if (from.type == to.type) {
    if (from.data != to.data && from.count > 0) std::memcpy(to.data, from.data, from.bytes());
    return;
  }
  with_type(from.type, [&](auto from_zero) {
    with_type(to.type, [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      if constexpr (std::is_same_v<From, float> || std::is_same_v<To, float> ||
                    (std::is_integral_v<From> && std::is_integral_v<To>)) {
        convert_each(static_cast<const From*>(from.data), static_cast<To*>(to.data), from.count);
      } else {
        HETEROPERF_EXPECT(!"types that partial results are of");
      }
    });
  });
}

/// An average is divided before it is rounded; bf16 and f16 divide in float32, integers in 64 bits.
void finish(ConstBuffer partial, MutableBuffer result, Reduction reduction, int ranks) {
  if (reduction != Reduction::average) return convert(partial, result);
  with_type(result.type, [&](auto zero) {
    using T = decltype(zero);
    using Wide = std::conditional_t<is_half<T>, float,
                                    std::conditional_t<std::is_integral_v<T>, std::int64_t, T>>;
    const auto divide = [&](const auto* sums) {
      T* const data = static_cast<T*>(result.data);
      for (std::size_t i = 0; i < result.count; ++i) {
        data[i] = static_cast<T>(static_cast<Wide>(sums[i]) / static_cast<Wide>(ranks));
      }
    };
    if (partial.type == result.type) return divide(static_cast<const T*>(partial.data));
    HETEROPERF_EXPECT(partial.type == data_type_of<Wide>());
    divide(static_cast<const Wide*>(partial.data));
  });
}

ConstBuffer widened(ConstBuffer input, Reduction reduction, Scratch& scratch) {
  const DataType type = partial_type(input.type, reduction);
  if (type == input.type) return input;
  const MutableBuffer wide(scratch.slot(scratch_slots::partial, input.count * size_of(type)),
                           input.count, type);
  convert(input, wide);
  return wide;
}

void PartialSums::add_before(const void* arrived, std::size_t begin, std::size_t count) const {
  combine({arrived, count, partial.type}, input.part(begin, count), partial.part(begin, count).data,
          reduction);
}

void PartialSums::finish_part(std::size_t begin, std::size_t count) const {
  finish(partial.part(begin, count), result.part(begin, count), reduction, ranks);
}

PartialSums make_partial_sums(ConstBuffer input, MutableBuffer result, Reduction reduction,
                              int ranks, Scratch& scratch) {
  HETEROPERF_EXPECT(input.count == result.count && input.type == result.type);
  const ConstBuffer wide = widened(input, reduction, scratch);
  if (wide.type == input.type) return {input, result, result, reduction, ranks};
  const MutableBuffer partial(scratch.slot(scratch_slots::partial, wide.bytes()), wide.count,
                              wide.type);
  return {partial, partial, result, reduction, ranks};
}

}  // namespace heteroperf
