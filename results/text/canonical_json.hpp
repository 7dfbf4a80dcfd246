#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heteroperf {

/// The one way this program writes JSON values into stored files, so that equal values are equal
/// bytes on every machine.

/// Largest magnitude below which every integer is exact in a double: 2^53.
inline constexpr std::int64_t largest_exact_integer = std::int64_t{1} << 53;

/// Shortest decimal text that reads back as the same double, always with a point or an exponent.
/// `value` must be finite.
std::string json_number(double value);
/// Decimal digits; a quoted string beyond 2^53.
std::string json_integer(std::int64_t value);
std::string json_integer(std::uint64_t value);
/// Quoted and escaped; bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

/// The same document without white space, numbers and strings as above, key order kept. Throws
/// UserError (`what` names the document) on malformed text or a number that no double holds.
std::string json_compact(std::string_view text, const std::string& what);
/// As `json_compact`, indented by two spaces, with a newline at the end.
std::string json_indented(std::string_view text, const std::string& what);

}  // namespace heteroperf
