#include "runners/comm/wire/wire_codec.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "metrics/base/error.hpp"
#include "runners/comm/buffer.hpp"

// The formats in which values travel between clusters:
//
//     fp32   the bytes of the values
//     bf16   2 bytes each
//     int8   [scale | 256 codes] [scale | 256 codes] …    value = scale · code
//
// Decoding either overwrites the values or adds to them; both are the same loops with another way
// to store (Overwrite, Add). The file is compiled with -ffp-contract=off, because a fused
// multiply-add would give other bits on some machines. The loops are written so that compilers
// vectorise them for any instruction set.

namespace heteroperf {
namespace {

constexpr std::uint32_t magnitude_mask = 0x7fffffff;
constexpr std::uint32_t infinity_bits = 0x7f800000;

/// Added to a number of magnitude below 2^22, it leaves that number, rounded to the nearest
/// integer, in the low bits.
constexpr float rounding_offset = 12582912.0F;  // 1.5 * 2^23

/// For a smaller absmax the scale would be subnormal and too coarse.
constexpr float smallest_absmax = 127 * std::numeric_limits<float>::min();

/// The scale absmax/127, or a bit less where 127 times it would be infinite.
float scale_for(float absmax) {
  const float scale = absmax / 127;
  const bool overflows = scale * 127 > std::numeric_limits<float>::max();
  return overflows ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) - 1) : scale;
}

/// Reads one value; `wire` may have any alignment.
template <class T>
T load(const std::byte* wire) {
  T value;
  std::memcpy(&value, wire, sizeof value);
  return value;
}

struct Overwrite {
  static void store(float& value, float decoded) { value = decoded; }
};
struct Add {
  static void store(float& value, float decoded) { value += decoded; }
};

void encode_bf16(const float* __restrict values, std::size_t count, std::byte* __restrict wire) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t bits = BFloat16(values[i]).bits;
    std::memcpy(wire + i * sizeof bits, &bits, sizeof bits);
  }
}

/// Decodes values that lie one after another as a T.
template <class Way, class T>
void decode_plain(const std::byte* __restrict wire, float* __restrict values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Way::store(values[i], static_cast<float>(load<T>(wire + i * sizeof(T))));
  }
}

/// Magnitudes compare as integers do, with NaN above infinity and infinity above all numbers.
std::uint32_t largest_magnitude(const float* values, std::size_t count) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits =
        static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(values[i]) & magnitude_mask);
    largest = bits > largest ? bits : largest;
  }
  return static_cast<std::uint32_t>(largest);
}

void encode_int8_block(const float* __restrict values, std::size_t count,
                       std::byte* __restrict wire) {
  const std::uint32_t largest = largest_magnitude(values, count);
  const auto absmax = std::bit_cast<float>(largest);
  const bool finite = largest < infinity_bits;
  const bool usable = finite && absmax >= smallest_absmax;
  const float scale =
      usable ? scale_for(absmax) : (finite ? 0.0F : std::numeric_limits<float>::quiet_NaN());
  const float inverse = usable ? 127 / absmax : 0.0F;
  std::memcpy(wire, &scale, sizeof scale);
  std::byte* __restrict codes = wire + sizeof scale;
  if (!usable) {
    std::memset(codes, 0, count);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::byte>(
        std::bit_cast<std::uint32_t>(values[i] * inverse + rounding_offset) & 0xff);
  }
}

template <class Way>
void decode_int8_block(float* __restrict values, std::size_t count,
                       const std::byte* __restrict wire) {
  const auto scale = load<float>(wire);
  const std::byte* __restrict codes = wire + sizeof scale;
  for (std::size_t i = 0; i < count; ++i) {
    Way::store(values[i], static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale);
  }
}

/// Calls work(values, count, wire) for every block.
template <class Values, class Wire, class Work>
void for_each_block(Values* values, std::size_t count, Wire* wire, Work work) {
  for (std::size_t begin = 0; begin < count; begin += wire_block) {
    const std::size_t n = std::min(wire_block, count - begin);
    work(values + begin, n, wire);
    wire += sizeof(float) + n;
  }
}

template <class Way>
void decode_as(WireFormat format, const std::byte* wire, std::span<float> values) {
  if (values.empty()) return;
  switch (format) {
    case WireFormat::fp32:
      return decode_plain<Way, float>(wire, values.data(), values.size());
    case WireFormat::bf16:
      return decode_plain<Way, BFloat16>(wire, values.data(), values.size());
    case WireFormat::int8:
      return for_each_block(values.data(), values.size(), wire, decode_int8_block<Way>);
  }
}

}  // namespace

std::size_t wire_bytes(WireFormat format, std::size_t count) {
  switch (format) {
    case WireFormat::fp32:
      return count * sizeof(float);
    case WireFormat::bf16:
      return count * sizeof(std::uint16_t);
    case WireFormat::int8:
      return count + (count + wire_block - 1) / wire_block * sizeof(float);
  }
  HETEROPERF_EXPECT(!"a known wire format");
  return 0;
}

void encode(WireFormat format, std::span<const float> values, std::byte* wire) {
  if (values.empty()) return;
  switch (format) {
    case WireFormat::fp32:
      std::memcpy(wire, values.data(), values.size_bytes());
      return;
    case WireFormat::bf16:
      return encode_bf16(values.data(), values.size(), wire);
    case WireFormat::int8:
      return for_each_block(values.data(), values.size(), wire, encode_int8_block);
  }
}

void decode(WireFormat format, const std::byte* wire, std::span<float> values) {
  if (format == WireFormat::fp32 && !values.empty()) {
    std::memcpy(values.data(), wire, values.size_bytes());
    return;
  }
  decode_as<Overwrite>(format, wire, values);
}

void decode_add(WireFormat format, const std::byte* wire, std::span<float> values) {
  decode_as<Add>(format, wire, values);
}

}  // namespace heteroperf
