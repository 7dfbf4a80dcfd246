#include "results/stored_document_json.hpp"

#include <fmt/format.h>

#include "metrics/error.hpp"
#include "results/run_folder.hpp"

namespace heteroperf {

using Json = nlohmann::ordered_json;

std::string way_out(const std::string& format) {
  if (format == sweep_format) return "The runs in its folder can still be used one by one.";
  // Nothing but suite.json tells what a suite was to run, so `recover` cannot make it again.
  return format == suite_format
             ? "Each workload's own folder can still be verified, shown and recovered."
             : "heteroperf recover rebuilds a record from its journal.";
}

Json parse_stored_document(const std::string& text, const std::string& origin, const char* format) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw UserError(origin + " is not valid JSON", error.what(), way_out(format));
  }
  const Json name = value_at(json, "/_format"), version = value_at(json, "/_version");
  if (name != format || version != document_version) {
    throw UserError(fmt::format("{} has format {} version {}", origin, name.dump(), version.dump()),
                    fmt::format("expected \"{}\" version {}", format, document_version));
  }
  return json;
}

Json read_stored_document(const std::filesystem::path& path, const char* format) {
  return parse_stored_document(read_text_file(path), path.string(), format);
}

Json value_at(const Json& json, const std::string& pointer) {
  const Json::json_pointer where(pointer);
  return json.contains(where) ? json.at(where) : Json();
}

}  // namespace heteroperf
