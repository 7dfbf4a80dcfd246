#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "metrics/statistics.hpp"

namespace heteroperf {

inline constexpr const char* operations_unit = "op/s";

/// A factor and its decimal prefix that leave 1 to 999 before the point; values below 1 keep the
/// factor 1.
struct Scaled {
  double factor;
  const char* prefix;
};
Scaled scale_of(double value);

/// "Gop/s", "GB/s", but "k token/s": only symbols take a prefix.
std::string prefixed(Scaled scaled, const std::string& unit);

/// 4 significant digits: "48.12 Gop/s".
std::string with_prefix(double value, const std::string& unit);
/// 4 significant digits in the unit that people would take: "12.5 ms", "23.19 s", "1.5 h".
std::string seconds_text(double seconds);

/// True when the text is a count as a record has them: decimal digits, none of them a leading zero.
/// Longer ones are larger, and equal counts have equal texts.
bool is_whole_count(const std::string& text);

/// True when an interval says more than that there were too few runs: its ends differ by no more
/// than a factor of 2.
bool is_useful(const Interval& interval);
/// "48.12 Gop/s [47.9, 48.3]"; "48.12 Gop/s (2 runs: no useful interval)" where that is all it
/// says.
std::string with_interval(double value, const std::optional<Interval>& ci95, std::size_t runs,
                          const std::string& unit);
/// "75.1 % [74.2, 76.0]", else as with_interval().
std::string percent_with_interval(double fraction, const std::optional<Interval>& ci95,
                                  std::size_t runs);

/// "1 run", "2 runs".
template <class Count>
std::string plural(Count count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Joins what `text_of` says about each element, with the separator between.
template <class Range, class TextOf>
std::string joined(const Range& range, const char* separator, TextOf text_of) {
  std::string text;
  for (const auto& element : range) text += (text.empty() ? "" : separator) + text_of(element);
  return text;
}

/// "-6.0 %" of the ratio 0.94.
std::string change_text(double ratio);

}  // namespace heteroperf
