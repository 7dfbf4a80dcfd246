#pragma once

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>

#include "metrics/base/strict_json.hpp"
#include "results/record/ruleset.hpp"

namespace heteroperf {

/// A stored record.json or suite.json, parsed. Throws UserError with the path when it is missing,
/// malformed, or of a format or version this program does not know.
Json read_stored_document(const std::filesystem::path& path, const char* format);
Json parse_stored_document(const std::string& text, const std::string& origin, const char* format);

/// Advice about a damaged document of this format; `origin` is its file, where known.
std::string way_out(const std::string& format, const std::filesystem::path& origin = {});

/// Returns what `make` takes out of a document of this format. A key that it misses there, or a
/// value of another type, becomes a UserError with the way out: the file is the user's, and no bug
/// of ours.
auto of_document(const std::filesystem::path& origin, const char* format, auto&& make) {
  try {
    return make();
  } catch (const Json::exception& error) {
    throw UserError(origin.string() + " misses a key or has a wrong type",
                    plain_json_words(error.what()), way_out(format, origin));
  } catch (const UserError& error) {
    throw UserError(origin.string() + " is not usable", error.what(), way_out(format, origin));
  }
}

/// The document that an event embeds; null where there is none.
inline Json parsed(const JsonText& json) {
  return json.text.empty() ? Json() : Json::parse(json.text);
}

/// The value at `pointer` ("/metrics/steps"), or null when there is none.
Json value_at(const Json& json, const std::string& pointer);

/// These set a key only where there is a value: no empty text, and of optional numbers a finite
/// one.
template <class T>
void put(Json& json, const std::string& key, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (!value.empty()) json[key] = value;
  } else if constexpr (std::is_same_v<T, Ops>) {
    json[key] = value.to_string();
  } else if constexpr (std::is_same_v<T, Interval>) {
    json[key] = {value.low, value.high};
  } else {
    json[key] = value;
  }
}
template <class T>
void put(Json& json, const std::string& key, const std::optional<T>& value) {
  if constexpr (std::is_same_v<T, double>) {
    if (value && !std::isfinite(*value)) return;
  }
  if (value) put(json, key, *value);
}
/// Writes a verdict: class, ruleset, and a reason for each rule that was broken.
Json validity_json(const Validity& validity, bool rankable, const std::string& ruleset);

/// The `_format` of each stored document, and the version that this program reads and writes.
inline constexpr const char* record_format = "heteroperf-record";
inline constexpr const char* operators_format = "heteroperf-operators";
inline constexpr const char* suite_format = "heteroperf-suite";
inline constexpr const char* sweep_format = "heteroperf-sweep";
inline constexpr int document_version = 1;

}  // namespace heteroperf
