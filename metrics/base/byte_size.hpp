#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "metrics/base/quantity.hpp"

namespace heteroperf {

/// "8", "64K", "128M", "2G" (binary multiples, either case), with an optional B or iB. Empty for
/// anything else and for what does not fit 64 bits.
std::optional<Bytes> parse_byte_size(std::string_view text);

/// The shortest such text that is exact: "64K", "1000".
std::string byte_size_text(Bytes size);

/// Rounded to four digits, for people: "41.2 GiB", "195.3 KiB", "100 B".
std::string rounded_byte_size(double bytes);
inline std::string rounded_byte_size(Bytes size) {
  return rounded_byte_size(static_cast<double>(size.value()));
}

}  // namespace heteroperf
