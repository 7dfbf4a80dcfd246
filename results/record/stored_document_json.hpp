#pragma once

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace heteroperf {

/// A stored record.json or suite.json, parsed. Throws UserError with the path when it is missing,
/// malformed, or of a format or version this program does not know.
nlohmann::ordered_json read_stored_document(const std::filesystem::path& path, const char* format);
nlohmann::ordered_json parse_stored_document(const std::string& text, const std::string& origin,
                                             const char* format);

/// Advice about a damaged document of this format; `origin` is its file, where known.
std::string way_out(const std::string& format, const std::filesystem::path& origin = {});

/// The value at `pointer` ("/metrics/steps"), or null when there is none.
nlohmann::ordered_json value_at(const nlohmann::ordered_json& json, const std::string& pointer);

/// Sets `key` where there is a number and it is finite.
inline void put_finite(nlohmann::ordered_json& json, const char* key, std::optional<double> value) {
  if (value && std::isfinite(*value)) json[key] = *value;
}

/// The `_format` of each stored document, and the version that this program reads and writes.
inline constexpr const char* record_format = "heteroperf-record";
inline constexpr const char* suite_format = "heteroperf-suite";
inline constexpr const char* sweep_format = "heteroperf-sweep";
inline constexpr int document_version = 1;

}  // namespace heteroperf
