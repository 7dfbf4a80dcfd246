#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "results/comparison/run_set.hpp"
#include "results/number_text.hpp"
#include "results/text_escapes.hpp"
#include "suite/verbs/baseline_listing.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

RunSet runs_of(const SavedBaseline& baseline) {
  return find_runs({baseline.files.begin(), baseline.files.end()});
}

Json run_json(const RunDigest& run) {
  Json json{{"file", utf8_text(run.record.string())},
            {"run_id", utf8_text(run.run_id)},
            {"created_utc", utf8_text(run.created_utc)},
            {"commit", utf8_text(run.git_commit)},
            {"key", Json::object()}};
  for (const KeyField& field : run.key) json["key"][field.name] = utf8_text(field.value);
  if (run.ops_per_second) json["ops_per_second"] = *run.ops_per_second;
  return json;
}

}  // namespace

std::string baseline_listing_text(const std::vector<SavedBaseline>& baselines) {
  std::string text;
  for (const SavedBaseline& baseline : baselines) {
    const RunSet runs = runs_of(baseline);
    text += baseline.name + '\n';
    for (const RunDigest& run : runs.runs) {
      text += fmt::format(
          "  {}  {} {} {}  {}\n", run.created_utc, run.workload, run.size,
          run.ops_per_second ? with_prefix(*run.ops_per_second, operations_unit) : "no score",
          run.record.filename().string());
    }
    for (const SkippedEntry& one : runs.skipped) {
      text += fmt::format("  NOT USABLE {}: {}\n", one.path.filename().string(), one.reason);
    }
  }
  return text;
}

std::string baseline_listing_json_text(const std::vector<SavedBaseline>& baselines,
                                       const BaselineReplacement& refused) {
  Json json{{"_format", "heteroperf-baselines"}, {"_version", 1}};
  if (refused.verdict != ReplacementVerdict::allowed) {
    json["refused"] = {{"verdict", to_string(refused.verdict)}, {"reasons", refused.reasons}};
  }
  json["baselines"] = Json::array();
  for (const SavedBaseline& baseline : baselines) {
    const RunSet runs = runs_of(baseline);
    Json entry{{"name", utf8_text(baseline.name)}, {"runs", Json::array()}};
    for (const RunDigest& run : runs.runs) entry["runs"].push_back(run_json(run));
    for (const SkippedEntry& one : runs.skipped) {
      entry["skipped"].push_back(
          {{"file", utf8_text(one.path.string())}, {"reason", utf8_text(one.reason)}});
    }
    json["baselines"].push_back(std::move(entry));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace heteroperf
