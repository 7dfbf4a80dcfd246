#pragma once

#include <string>

namespace heteroperf {

inline constexpr const char* operations_unit = "op/s";

/// A decimal prefix that leaves 1 to 999 before the point.
struct Scaled {
  double factor;
  const char* prefix;
};
Scaled scale_of(double value);

/// "Gop/s", but "k token/s": only the symbol of operations takes a prefix.
std::string prefixed(Scaled scaled, const std::string& unit);

/// 4 significant digits: "48.12 Gop/s".
std::string with_prefix(double value, const std::string& unit);

/// "-6.0 %" of the ratio 0.94.
std::string change_text(double ratio);

}  // namespace heteroperf
