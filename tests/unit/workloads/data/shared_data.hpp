#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace heteroperf {

/// Path of a file or folder among data sets that are not part of the repository: below
/// $HETEROPERF_SHARED/data, else beside the source tree. Nothing when it is not there.
inline std::optional<std::string> shared_data(const std::string& name) {
  const char* variable = std::getenv("HETEROPERF_SHARED");
  const std::filesystem::path root = variable != nullptr ? variable : HETEROPERF_SHARED_DEFAULT;
  const std::filesystem::path path = root / "data" / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path.string();
}

}  // namespace heteroperf
