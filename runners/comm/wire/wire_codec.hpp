#pragma once

#include <cstddef>
#include <span>

#include "runners/cluster/link_curve.hpp"

namespace heteroperf {

/// Values per scale of int8.
constexpr std::size_t wire_block = 256;

/// Bytes that `count` float32 values take on the wire: 4n, 2n, or n + 4·⌈n/wire_block⌉.
std::size_t wire_bytes(WireFormat format, std::size_t count);

/// Writes wire_bytes(format, values.size()) bytes, the same on every machine (of little endian).
/// bf16: nearest, ties to even; error at most 2^-8 of the value, or 2^-134 below 2^-126; beyond
/// 3.39e38 infinite; NaN stays NaN. int8: per block scale = absmax/127, then its values; error at
/// most absmax/254. A block with a NaN or infinity decodes to NaN, one with absmax below 127·2^-126
/// to zeros.
void encode(WireFormat format, std::span<const float> values, std::byte* wire);
/// values = decoded.
void decode(WireFormat format, const std::byte* wire, std::span<float> values);
/// values += decoded, in float32.
void decode_add(WireFormat format, const std::byte* wire, std::span<float> values);

}  // namespace heteroperf
