#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "results/journal/journal.hpp"
#include "results/record/verify.hpp"

namespace heteroperf {

/// Holds many lines of a journal to one rule and counts them. The result is one row of `verify`:
/// fine with the count, or else the first wrong line with its expected and its actual value. Later
/// faults are left out, since one wrong line often makes those after it wrong as well.
class LineCheck {
 public:
  /// `what` is the noun of the count, "steps".
  LineCheck(std::string name, std::string what) : name_(std::move(name)), what_(std::move(what)) {}

  /// Compares two values. `line` counts from 1 on; `field` names the value in a message.
  template <class Expected, class Actual>
  void equal(std::size_t line, std::string_view field, const Expected& expected,
             const Actual& actual) {
    ++count_;
    if (expected == actual || wrong_) return;
    tell(line, fmt::format("{} {}", field, expected), fmt::format("{} {}", field, actual));
  }
  /// As equal(), for rules that are no equality. `expected` and `actual` are the forms of two texts
  /// over the same values. They are filled in only for the line that is told, since texts are dear
  /// where a journal has a million lines.
  template <class... Values>
  void hold(std::size_t line, bool holds, fmt::format_string<const Values&...> expected,
            fmt::format_string<const Values&...> actual, const Values&... values) {
    ++count_;
    if (holds || wrong_) return;
    tell(line, fmt::format(expected, values...), fmt::format(actual, values...));
  }

  /// Counts something that the caller has held already.
  void pass() { ++count_; }

  /// Everything that was held so far; 0 where the journal has no line for this rule.
  std::size_t count() const { return count_; }
  VerifyCheck result() const {
    const std::string all = fmt::format("{} {}", count_, what_);
    return wrong_.value_or(VerifyCheck{name_, true, all, all});
  }

 private:
  void tell(std::size_t line, const std::string& expected, std::string actual) {
    wrong_ =
        VerifyCheck{name_, false, fmt::format("line {}: {}", line, expected), std::move(actual)};
  }

  std::string name_, what_;
  std::size_t count_ = 0;
  std::optional<VerifyCheck> wrong_;
};

/// Calls `visit(line, event)` for every event of this kind, in order; lines count from 1 on.
template <class E, class Visit>
void for_lines(const Journal& journal, Visit&& visit) {
  for (std::size_t i = 0; i < journal.lines.size(); ++i) {
    if (const E* event = std::get_if<E>(&journal.lines[i].event)) visit(i + 1, *event);
  }
}

}  // namespace heteroperf
