// The history as JSON, for scripts: the series with their points, and all change points in one
// list, where each names its series and its first point by index. All texts of records become valid
// UTF-8, so that the document can always be written.
#include <nlohmann/json.hpp>

#include "results/history/run_history.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

Json point_json(const HistoryPoint& point) {
  Json json{{"run_id", utf8_text(point.run_id)},
            {"created_utc", utf8_text(point.created_utc)},
            {"commit", utf8_text(point.git_commit)},
            {"value", point.value}};
  for (const std::string& change : point.environment_changes) {
    json["environment_changes"].push_back(utf8_text(change));
  }
  return json;
}

Json series_json(const HistorySeries& series) {
  Json json{{"label", utf8_text(series.label)}, {"key", Json::object()}, {"points", Json::array()}};
  for (const KeyField& field : series.key) json["key"][field.name] = utf8_text(field.value);
  for (const auto& [path, value] : series.setup) json["setup"][path] = utf8_text(value);
  for (const HistoryPoint& point : series.points) json["points"].push_back(point_json(point));
  return json;
}

}  // namespace

std::string history_json_text(const RunHistory& history) {
  Json json{{"_format", "heteroperf-history"}, {"_version", 1},
            {"metric", history.metric->name},  {"unit", history.metric->unit},
            {"series", Json::array()},         {"change_points", Json::array()},
            {"skipped", Json::array()},        {"foreign", history.foreign}};
  for (std::size_t i = 0; i < history.series.size(); ++i) {
    json["series"].push_back(series_json(history.series[i]));
    for (const LevelChange& change : history.series[i].changes) {
      json["change_points"].push_back({{"series", i},
                                       {"index", change.index},
                                       {"commit", utf8_text(change.commit)},
                                       {"before", change.before},
                                       {"after", change.after},
                                       {"p", change.p},
                                       {"worse", change.worse}});
    }
  }
  for (const SkippedEntry& run : history.skipped) {
    json["skipped"].push_back(
        {{"record", utf8_text(run.path.string())}, {"reason", utf8_text(run.reason)}});
  }
  return json_indented(json.dump(-1, ' ', false, Json::error_handler_t::replace), "the history");
}

}  // namespace heteroperf
