#pragma once

#include <string>

namespace heteroperf {

/// True when the text is a count as a record has them: decimal digits, none of them a leading zero.
/// Longer ones are larger, and equal counts have equal texts.
inline bool is_whole_count(const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return digits && (text[0] != '0' || text.size() == 1);
}

}  // namespace heteroperf
