#pragma once

#include <cstddef>
#include <span>

#include "runners/cluster/link_curve.hpp"

namespace heteroperf {

/// The number of values that share one scale in the int8 format.
constexpr std::size_t wire_block = 256;

/// The bytes that `count` float32 values take on the wire: 4n, 2n, or n + 4·⌈n/wire_block⌉.
std::size_t wire_bytes(WireFormat format, std::size_t count);

/// Writes wire_bytes(format, values.size()) bytes, the same on every machine (of little endian).
///
/// bf16 rounds to the nearest number, ties to even. Its error is at most 2^-8 of the value, or
/// 2^-134 below 2^-126; values beyond 3.39e38 become infinite; NaN stays NaN.
///
/// int8 writes for each block the scale absmax/127 and then the values. Its error is at most
/// absmax/254. A block with a NaN or infinity decodes to NaN, one with absmax below 127·2^-126 to
/// zeros.
void encode(WireFormat format, std::span<const float> values, std::byte* wire);
/// Overwrites `values` with the decoded ones.
void decode(WireFormat format, const std::byte* wire, std::span<float> values);
/// Adds the decoded values to `values`, in float32.
void decode_add(WireFormat format, const std::byte* wire, std::span<float> values);

}  // namespace heteroperf
