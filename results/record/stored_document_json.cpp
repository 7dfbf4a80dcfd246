// Reads the documents that this program stores: record.json, suite.json and sweep.json. Each names
// its format and version, so that another file or another version is told from a damaged one.
// Errors name the file and a way out: most documents can be made again from journals.
#include "results/record/stored_document_json.hpp"

#include "metrics/base/strict_json.hpp"
#include "results/record/run_folder.hpp"

namespace heteroperf {

namespace {

/// Only a journal tells what a record was, so the advice depends on a journal beside it.
std::string way_out_of_record(const std::filesystem::path& origin) {
  if (origin.empty() || std::filesystem::exists(RunFiles{origin.parent_path()}.journal())) {
    return "heteroperf recover rebuilds a record from its journal.";
  }
  return origin.filename() == RunFiles{}.record().filename()
             ? "No journal lies beside it that it could be made from again."
             : "A run's folder, its record.json or a saved baseline is wanted.";
}

}  // namespace

std::string way_out(const std::string& format, const std::filesystem::path& origin) {
  if (format == sweep_format) {
    return "heteroperf recover of its folder makes it again from the runs in it.";
  }
  return format == suite_format
             ? "Move it away: heteroperf recover of its folder makes it again where the journals "
               "name the suite."
             : way_out_of_record(origin);
}

/// An error that has no advice of its own gets the way out of this format.
Json parse_stored_document(const std::string& text, const std::string& origin, const char* format) {
  if (text.empty()) throw UserError(origin + " is empty", "", way_out(format, origin));
  Json json;
  try {
    json = parse_strict_json(text, origin, format, run_file_limits);
  } catch (const UserError& error) {
    const Problem& wrong = error.problems().front();
    if (!wrong.suggestion.empty()) throw;
    throw UserError(wrong.problem, wrong.why, way_out(format, origin));
  }
  require_format(json, origin, format, document_version);
  return json;
}

Json read_stored_document(const std::filesystem::path& path, const char* format) {
  return parse_stored_document(read_run_file(path), path.string(), format);
}

Json validity_json(const Validity& validity, bool rankable, const std::string& ruleset) {
  Json json{{"class", to_string(validity.severity)},
            {"rankable", rankable},
            {"ruleset", ruleset},
            {"reasons", Json::array()}};
  for (const Reason& reason : validity.reasons) {
    json["reasons"].push_back({{"rule", reason.rule},
                               {"severity", to_string(reason.severity)},
                               {"parameter", reason.parameter},
                               {"expected", reason.expected},
                               {"actual", reason.actual},
                               {"hint", reason.hint}});
  }
  return json;
}

/// Records of other versions lack keys, so an absent one is no error here.
Json value_at(const Json& json, const std::string& pointer) {
  const Json::json_pointer where(pointer);
  return json.contains(where) ? json.at(where) : Json();
}

}  // namespace heteroperf
