// Numbers for readers: four digits with a decimal prefix, and intervals in the prefix of their
// value, so that both can be compared at sight. An interval of two or three runs is often so wide
// that it says nothing; it is then replaced by words, since a range of numbers would look like
// knowledge.
#include "results/text/number_text.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace heteroperf {
namespace {

constexpr std::array prefixes{"", "k", "M", "G", "T", "P", "E", "Z"};

/// "2 runs: no useful interval", in brackets.
std::string useless_interval(std::size_t runs) {
  return fmt::format(" ({}: no useful interval)", plural(runs, "run"));
}

}  // namespace

Scaled scale_of(double value) {
  constexpr double prefix_step = 1000;
  std::size_t i = 0;
  double factor = 1;
  // A value of 999.96 is written as "1000", since the prefix is chosen before rounding.
  while (std::fabs(value) / factor >= prefix_step && i + 1 < prefixes.size())
    factor *= prefix_step, ++i;
  return {factor, prefixes[i]};
}

std::string prefixed(Scaled scaled, const std::string& unit) {
  const bool symbol = unit.starts_with("op") || unit.starts_with("B/") || unit.size() == 1;
  const bool apart = *scaled.prefix != '\0' && !unit.empty() && !symbol;
  return fmt::format("{}{}{}", scaled.prefix, apart ? " " : "", unit);
}

std::string with_prefix(double value, const std::string& unit) {
  const Scaled scaled = scale_of(value);
  const std::string suffix = prefixed(scaled, unit);
  return fmt::format("{:.4g}{}{}", value / scaled.factor, suffix.empty() ? "" : " ", suffix);
}

std::string seconds_text(double seconds) {
  struct Step {
    double from, length;
    const char* unit;
  };
  constexpr Step steps[] = {{7200, 3600, "h"},  {600, 60, "min"},   {1, 1, "s"},
                            {1e-3, 1e-3, "ms"}, {1e-6, 1e-6, "µs"}, {0, 1e-9, "ns"}};
  if (seconds == 0) return "0 s";
  for (const Step& step : steps) {
    if (std::fabs(seconds) >= step.from)
      return fmt::format("{:.4g} {}", seconds / step.length, step.unit);
  }
  return fmt::format("{} s", seconds);
}

bool is_whole_count(const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return digits && (text[0] != '0' || text.size() == 1);
}

bool is_useful(const Interval& interval) {
  constexpr double widest = 2;
  return interval.low > 0 && interval.high <= widest * interval.low;
}

/// The interval has the prefix of its value, which stands in front of it once.
std::string with_interval(double value, const std::optional<Interval>& ci95, std::size_t runs,
                          const std::string& unit) {
  const std::string text = with_prefix(value, unit);
  if (!ci95) return text;
  if (!is_useful(*ci95)) return text + useless_interval(runs);
  const double factor = scale_of(value).factor;
  return text + fmt::format(" [{:.4g}, {:.4g}]", ci95->low / factor, ci95->high / factor);
}

std::string percent_with_interval(double fraction, const std::optional<Interval>& ci95,
                                  std::size_t runs) {
  const std::string text = fmt::format("{:.1f} %", 100 * fraction);
  if (!ci95) return text;
  if (!is_useful(*ci95)) return text + useless_interval(runs);
  return text + fmt::format(" [{:.1f}, {:.1f}]", 100 * ci95->low, 100 * ci95->high);
}

/// A ratio of 1 is no change; the sign is always written.
std::string change_text(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

}  // namespace heteroperf
