// Names of segments, branches and schedules come from files of anybody. A message must stay on one
// line and a terminal must not be steered by it; a drawing must stay valid XML and UTF-8.

#include "runners/schedule/formats/quoted_text.hpp"

#include <fmt/format.h>

namespace heteroperf {
namespace {

constexpr std::size_t most_quoted = 40;

constexpr bool prints(unsigned char c) { return c >= 0x20 && c < 0x7f; }

/// The number of bytes of the UTF-8 sequence that `text` begins with; 0 where there is none, or it
/// is overlong or a surrogate.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0);
    return !wrong && follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first < 0xf5) {
    const bool wrong = (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
    return !wrong && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text.substr(0, most_quoted)) {
    const auto byte = static_cast<unsigned char>(c);
    if (prints(byte)) {
      result += c;
    } else {
      result += fmt::format("\\x{:02x}", byte);
    }
  }
  return result + (text.size() > most_quoted ? "...\"" : "\"");
}

std::string drawable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    // The second control block, U+0080 to U+009F, is C2 80 to C2 9F.
    const bool control =
        first < 0x20 || first == 0x7f ||
        (length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (length == 0 || control) {
      result += '?';
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

}  // namespace heteroperf
