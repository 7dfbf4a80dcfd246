// This file writes a ranking as JSON. The keys of an entry are the columns of the table, so both
// forms stay in step; a few columns that exist to flatten a list into one cell are replaced here by
// the list itself: the interval, the runs of an entry, and the excluded records.

#include <nlohmann/json.hpp>

#include "results/ranking/ranking_columns.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

/// One repetition of an entry, by which a reader finds its record.
Json run_json(const RunDigest& run) {
  return {{"run_id", utf8_text(run.run_id)},
          {"record_sha256", run.record_sha256},
          {"created_utc", utf8_text(run.created_utc)},
          {"seed", run.seed},
          {"ops_per_second", *run.ops_per_second}};
}

Json entry_json(const RankList& list, const RankEntry& entry) {
  Json json;
  for (const RankColumn& column : rank_columns()) {
    const std::string name = column.name, value = column.value(list, entry);
    const bool elsewhere =
        name == "ci95_low" || name == "ci95_high" || name == "run_ids" || name == "state";
    if (value.empty() || elsewhere) continue;
    json[name] = column.number ? Json::parse(value) : Json(utf8_text(value));
    if (name == "ops_per_second" && entry.ops_ci95) {
      json["ci95"] = {entry.ops_ci95->low, entry.ops_ci95->high};
    }
  }
  json["shared"] = entry.shared;
  json["runs"] = Json::array();
  for (const RunDigest* run : entry.runs) json["runs"].push_back(run_json(*run));
  json["scale"] = Json::array();
  for (const DeviceShare& share : entry.run->devices) {
    json["scale"].push_back({{"class", utf8_text(share.device_class)}, {"count", share.count}});
  }
  return json;
}

}  // namespace

std::string ranking_json_text(const RankingReport& ranking) {
  Json json{{"_format", "heteroperf-ranking"}, {"_version", 1},
            {"by", to_string(ranking.key)},    {"filtered", ranking.filtered},
            {"entries", Json::array()},        {"published", Json::array()},
            {"excluded", Json::array()}};
  for (const RankList& list : ranking.lists) {
    for (const RankEntry& entry : list.entries) json["entries"].push_back(entry_json(list, entry));
  }
  for (const PublishedScore& one : ranking.published) {
    Json& entry = json["published"].emplace_back(Json{{"source", utf8_text(one.source)},
                                                      {"ops_per_second", one.ops_per_second},
                                                      {"convention", "aiperf"},
                                                      {"comparable", false},
                                                      {"remark", one.remark}});
    if (one.regulated) entry["regulated_score"] = *one.regulated;
  }
  for (const ExcludedRecord& one : ranking.excluded) {
    Json& entry = json["excluded"].emplace_back(Json{{"record", utf8_text(one.record)}});
    for (const std::string& reason : one.reasons) entry["reasons"].push_back(utf8_text(reason));
  }
  return json_indented(json.dump(-1, ' ', false, Json::error_handler_t::replace), "the ranking");
}

}  // namespace heteroperf
