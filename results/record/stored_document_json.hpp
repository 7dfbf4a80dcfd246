#pragma once

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "metrics/base/strict_json.hpp"
#include "results/record/ruleset.hpp"

namespace heteroperf {

/// A stored record.json or suite.json, parsed. Throws UserError with the path when it is missing,
/// malformed, or of a format or version this program does not know.
nlohmann::ordered_json read_stored_document(const std::filesystem::path& path, const char* format);
nlohmann::ordered_json parse_stored_document(const std::string& text, const std::string& origin,
                                             const char* format);

/// Advice about a damaged document of this format; `origin` is its file, where known.
std::string way_out(const std::string& format, const std::filesystem::path& origin = {});

/// Returns what `make` takes out of a document of this format. A key that it misses there, or a
/// value of another type, becomes a UserError with the way out: the file is the user's, and no bug
/// of ours.
auto of_document(const std::filesystem::path& origin, const char* format, auto&& make) {
  try {
    return make();
  } catch (const nlohmann::ordered_json::exception& error) {
    throw UserError(origin.string() + " misses a key or has a wrong type",
                    plain_json_words(error.what()), way_out(format, origin));
  } catch (const UserError& error) {
    throw UserError(origin.string() + " is not usable", error.what(), way_out(format, origin));
  }
}

/// The value at `pointer` ("/metrics/steps"), or null when there is none.
nlohmann::ordered_json value_at(const nlohmann::ordered_json& json, const std::string& pointer);

/// These set a key only where there is a value; a number must also be finite.
template <class T>
void put(nlohmann::ordered_json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}
inline void put(nlohmann::ordered_json& json, const char* key, const std::optional<Ops>& value) {
  if (value) json[key] = value->to_string();
}
inline void put(nlohmann::ordered_json& json, const char* key, const std::string& value) {
  if (!value.empty()) json[key] = value;
}
inline void put(nlohmann::ordered_json& json, const char* key,
                const std::optional<Interval>& value) {
  if (value) json[key] = {value->low, value->high};
}
inline void put(nlohmann::ordered_json& json, const char* key, const std::optional<double>& value) {
  if (value && std::isfinite(*value)) json[key] = *value;
}
/// Writes a verdict: class, ruleset, and a reason for each rule that was broken.
nlohmann::ordered_json validity_json(const Validity& validity, bool rankable,
                                     const std::string& ruleset);

/// The `_format` of each stored document, and the version that this program reads and writes.
inline constexpr const char* record_format = "heteroperf-record";
inline constexpr const char* suite_format = "heteroperf-suite";
inline constexpr const char* sweep_format = "heteroperf-sweep";
inline constexpr int document_version = 1;

}  // namespace heteroperf
