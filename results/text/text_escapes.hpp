#pragma once

#include <string>
#include <string_view>

namespace heteroperf {

/// Names and paths hold any bytes; what is made of them must be well-formed.

/// Bytes that are not UTF-8, and control characters but newline and tab, become U+FFFD.
std::string utf8_text(std::string_view bytes);

/// The same on one line: newlines and tabs become spaces.
std::string line_text(std::string_view bytes);

/// Quoted where a comma, a quote or a line break asks for it (RFC 4180), and with an apostrophe in
/// front where a spreadsheet would take a text for a formula.
std::string csv_cell(std::string_view text);
/// For a table: no pipes, no line breaks, no HTML, no code, links or images.
std::string markdown_cell(std::string_view text);
/// For text and attribute values of HTML and XML alike.
std::string html_text(std::string_view text);

}  // namespace heteroperf
