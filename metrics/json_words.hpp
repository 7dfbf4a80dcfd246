#pragma once

#include <string>

namespace heteroperf {

/// What nlohmann's JSON says is wrong, for a message: without its own prefix, on one line,
/// printable and short.
std::string plain_json_words(const std::string& words);

}  // namespace heteroperf
