#pragma once

#include <cstddef>
#include <cstdint>

#include "runners/comm/buffer.hpp"

namespace heteroperf {

/// 64 bits that change with every single changed 8-byte word, and with several almost surely
/// (missed with probability 2⁻⁶⁴ for random damage). Against accidents, not attackers. Any
/// alignment; the same value on every machine of one byte order.
std::uint64_t checksum(const void* data, std::size_t bytes);
inline std::uint64_t checksum(ConstBuffer values) { return checksum(values.data, values.bytes()); }

}  // namespace heteroperf
