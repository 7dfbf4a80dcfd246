#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "results/journal.hpp"
#include "results/verify.hpp"

namespace heteroperf {

/// Holds many lines of a journal to one rule; its result is fine unless a line was wrong, of which
/// the first is told.
class LineCheck {
 public:
  /// `what` is counted: "steps".
  LineCheck(std::string name, std::string what) : name_(std::move(name)), what_(std::move(what)) {}

  /// `line` counts from 1 on; `field` says whose values these are.
  template <class Expected, class Actual>
  void equal(std::size_t line, std::string_view field, const Expected& expected,
             const Actual& actual) {
    ++count_;
    if (expected == actual || wrong_) return;
    tell(line, fmt::format("{} {}", field, expected), fmt::format("{} {}", field, actual));
  }
  /// `expected` and `actual` make the texts of a line that is wrong.
  template <class Text, class OtherText>
  void hold(std::size_t line, bool holds, Text&& expected, OtherText&& actual) {
    ++count_;
    if (!holds && !wrong_) tell(line, expected(), actual());
  }

  void pass() { ++count_; }

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
