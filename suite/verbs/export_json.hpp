#pragma once

#include <string>

namespace heteroperf {

/// {"format":…, "text":…}: what `export --json` prints.
std::string export_json_text(const std::string& format, const std::string& text);

}  // namespace heteroperf
