// Makes text safe for the place where it is printed. Names, paths and texts of records may hold any
// bytes, and a stranger may have chosen them: control characters could move a terminal's cursor,
// markup could end a table's cell or start a script, and a spreadsheet would compute a formula.
// Every function first makes well-formed UTF-8 of its input and then replaces what its target would
// take for more than text.
#include "results/text/text_escapes.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>

namespace heteroperf {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";

/// The first byte of a UTF-8 character: the bits that tell its length, and the least code that
/// needs as many bytes.
struct Lead {
  unsigned char mask, pattern;
  std::size_t length;
  std::uint32_t smallest;  // shorter forms must not be written longer
};
constexpr Lead leads[] = {
    {0x80, 0x00, 1, 0}, {0xe0, 0xc0, 2, 0x80}, {0xf0, 0xe0, 3, 0x800}, {0xf8, 0xf0, 4, 0x10000}};

/// True for a code that may stand in text: no surrogate, no control character, no noncharacter, and
/// in its shortest form.
bool is_scalar(std::uint32_t code, std::uint32_t smallest) {
  const bool control = (code < 0x20 && code != '\n' && code != '\t') || code == 0x7f ||
                       (code >= 0x80 && code < 0xa0) || (code & 0xfffe) == 0xfffe;
  return code >= smallest && code <= 0x10ffff && !(code >= 0xd800 && code < 0xe000) && !control;
}

/// Bytes of the character that begins `text`; 0 when there is none.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (const Lead& lead : leads) {
    if ((byte(0) & lead.mask) != lead.pattern) continue;
    if (text.size() < lead.length) return 0;
    std::uint32_t code = byte(0) & static_cast<unsigned char>(~lead.mask);
    for (std::size_t i = 1; i < lead.length; ++i) {
      if ((byte(i) & 0xc0) != 0x80) return 0;
      code = code << 6 | (byte(i) & 0x3f);
    }
    return is_scalar(code, lead.smallest) ? lead.length : 0;
  }
  return 0;
}

struct Substitute {
  char character;
  const char* text;
};

/// Replaces single characters by the texts of the table.
template <std::size_t size>
std::string substituted(const std::string& text, const Substitute (&table)[size]) {
  std::string out;
  for (const char c : text) {
    const auto* known = std::ranges::find(table, c, &Substitute::character);
    known == std::end(table) ? out += c : out += known->text;
  }
  return out;
}

/// True for text that a spreadsheet would compute. A number may begin with a sign.
bool is_formula(const std::string& text) {
  if (text.empty() || std::string_view("=+-@\t").find(text[0]) == std::string_view::npos) {
    return false;
  }
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return end != text.c_str() + text.size();
}

}  // namespace

std::string utf8_text(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t length = character_length(bytes);
    text += length == 0 ? replacement : bytes.substr(0, length);
    bytes.remove_prefix(length == 0 ? 1 : length);
  }
  return text;
}

std::string line_text(std::string_view bytes) {
  constexpr Substitute breaks[] = {{'\n', " "}, {'\t', " "}};
  return substituted(utf8_text(bytes), breaks);
}

std::string csv_cell(std::string_view text) {
  const std::string clean = utf8_text(text);
  const std::string cell = is_formula(clean) ? "'" + clean : clean;
  if (cell.find_first_of(",\"\n\r") == std::string::npos) return cell;
  constexpr Substitute quotes[] = {{'"', "\"\""}};
  return '"' + substituted(cell, quotes) + '"';
}

std::string markdown_cell(std::string_view text) {
  constexpr Substitute special[] = {{'|', "\\|"},  {'\n', " "},    {'<', "&lt;"},
                                    {'>', "&gt;"}, {'&', "&amp;"}, {'`', "&#96;"}};
  std::string cell = substituted(utf8_text(text), special);
  // Without this pair there is neither a link nor an image.
  for (std::size_t at = 0; (at = cell.find("](", at)) != std::string::npos;) {
    cell.replace(at + 1, 1, "&#40;");
  }
  return cell;
}

std::string html_text(std::string_view text) {
  constexpr Substitute special[] = {
      {'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  return substituted(utf8_text(text), special);
}

}  // namespace heteroperf
