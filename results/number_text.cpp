#include "results/number_text.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace heteroperf {
namespace {

constexpr std::array prefixes{"", "k", "M", "G", "T", "P", "E", "Z"};

}  // namespace

Scaled scale_of(double value) {
  constexpr double prefix_step = 1000;
  std::size_t i = 0;
  double factor = 1;
  while (std::fabs(value) / factor >= prefix_step && i + 1 < prefixes.size())
    factor *= prefix_step, ++i;
  return {factor, prefixes[i]};
}

std::string prefixed(Scaled scaled, const std::string& unit) {
  const bool apart = *scaled.prefix != '\0' && !unit.empty() && unit != operations_unit;
  return fmt::format("{}{}{}", scaled.prefix, apart ? " " : "", unit);
}

std::string with_prefix(double value, const std::string& unit) {
  const Scaled scaled = scale_of(value);
  const std::string suffix = prefixed(scaled, unit);
  return fmt::format("{:.4g}{}{}", value / scaled.factor, suffix.empty() ? "" : " ", suffix);
}

std::string change_text(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

}  // namespace heteroperf
