#pragma once

#include <string>
#include <string_view>

namespace heteroperf {

/// A foreign text for a message: in quotes, on one line, bytes that do not print as \xNN, cut after
/// some forty characters.
std::string in_quotes(std::string_view text);

/// A foreign text for a drawing: valid UTF-8 without control characters ('?' instead of each).
std::string drawable(std::string_view text);

}  // namespace heteroperf
