#pragma once

#include <fmt/format.h>

#include <concepts>
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

  /// Goes to a line, which what follows is about. Lines count from 1 on.
  void at(std::size_t line) { line_ = line; }
  std::size_t line() const { return line_; }
  /// Goes through the lines of a journal and calls those of the visitors that take the line's kind
  /// of event, in their order. It ends at the last line.
  template <class... Visits>
  void each(const Journal& journal, Visits&&... visits) {
    for (line_ = 1; line_ <= journal.lines.size(); ++line_) {
      std::visit([&](const auto& event) { (visit_if(visits, event), ...); },
                 journal.lines[line_ - 1].event);
    }
    at(journal.lines.size());
  }

  /// Compares two values of the line; `field` names the value in a message.
  template <class Expected, class Actual>
  void equal(std::string_view field, const Expected& expected, const Actual& actual) {
    ++count_;
    if (expected == actual || wrong_) return;
    tell(fmt::format("{} {}", field, told(expected)), fmt::format("{} {}", field, told(actual)));
  }
  /// As equal(), for rules that are no equality. `expected` and `actual` are the forms of two texts
  /// over the same values. They are filled in only for the line that is told, since texts are dear
  /// where a journal has a million lines.
  template <class... Values>
  void hold(bool holds, fmt::format_string<const Values&...> expected,
            fmt::format_string<const Values&...> actual, const Values&... values) {
    ++count_;
    if (holds || wrong_) return;
    tell(fmt::format(expected, values...), fmt::format(actual, values...));
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
  /// A value of an enumeration is told by its name.
  static const auto& told(const auto& value) { return value; }
  template <class Enum>
  requires std::is_enum_v<Enum>
  static auto told(const Enum& value) { return to_string(value); }
  template <class Visit, class E>
  static void visit_if(Visit& visit, const E& event) {
    if constexpr (std::invocable<Visit&, const E&>) visit(event);
  }
  void tell(const std::string& expected, std::string actual) {
    wrong_ =
        VerifyCheck{name_, false, fmt::format("line {}: {}", line_, expected), std::move(actual)};
  }

  std::string name_, what_;
  std::size_t line_ = 1, count_ = 0;
  std::optional<VerifyCheck> wrong_;
};

}  // namespace heteroperf
