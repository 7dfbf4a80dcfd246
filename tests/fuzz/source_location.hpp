#pragma once

/// clang before 16 lacks what the library's <source_location> is made of, and then has no such
/// type. The preset `fuzz` puts this before every source, so that the clang of a distribution will
/// do.
#include <cstdint>

namespace std {

struct source_location {
  static constexpr source_location current(const char* file = __builtin_FILE(),
                                           const char* function = __builtin_FUNCTION(),
                                           uint_least32_t line = __builtin_LINE()) noexcept {
    return {file, function, line};
  }
  constexpr const char* file_name() const noexcept { return file_; }
  constexpr const char* function_name() const noexcept { return function_; }
  constexpr uint_least32_t line() const noexcept { return line_; }

  const char* file_;
  const char* function_;
  uint_least32_t line_;
};

}  // namespace std
