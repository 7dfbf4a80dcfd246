#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "metrics/quantity.hpp"

namespace heteroperf {

/// "8", "64K", "128M", "2G" (binary multiples, either case), with an optional B or iB. Empty for
/// anything else and for what does not fit 64 bits.
std::optional<Bytes> parse_byte_size(std::string_view text);

/// The shortest such text that is exact: "64K", "1000".
std::string byte_size_text(Bytes size);

}  // namespace heteroperf
