#pragma once

#include <string>
#include <string_view>

namespace heteroperf {

/// A foreign text for a message: in quotes, on one line, with \xNN for bytes that do not print, and
/// cut after some forty characters.
std::string in_quotes(std::string_view text);

/// A foreign text for a drawing: valid UTF-8 with '?' instead of each control character.
std::string drawable(std::string_view text);

}  // namespace heteroperf
