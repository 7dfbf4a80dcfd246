#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "metrics/json_words.hpp"
#include "results/report/report_run.hpp"

namespace heteroperf {
namespace {

using TraceJson = nlohmann::json;
constexpr double microsecond = 1e-6;

struct KindOfName {
  const char* prefix;
  const char* kind;
};
/// Longer names first.
constexpr KindOfName kinds[] = {{"RECOMPUTE", "recomputation"},
                                {"REDUCE", "gradient sum"},
                                {"SEND", "message"},
                                {"RECV", "message"},
                                {"OPT", "optimizer"},
                                {"BW", "backward"},
                                {"B", "input gradient"},
                                {"W", "weight gradient"},
                                {"F", "forward"}};

const char* kind_of(const std::string& name) {
  for (const KindOfName& one : kinds) {
    if (name.starts_with(one.prefix)) return one.kind;
  }
  return "other";
}

StepTimeline lanes_of(const TraceJson& trace, double scale) {
  StepTimeline timeline;
  std::map<std::int64_t, StepLane> lanes;
  for (const TraceJson& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "M" && event.at("name") == "thread_name") {
      lanes[event.at("tid").get<std::int64_t>()].name = event.at("args").at("name");
    } else if (phase == "X") {
      const double start_s = event.at("ts").get<double>() * microsecond * scale;
      const double length_s = event.at("dur").get<double>() * microsecond * scale;
      const std::string name = event.at("name");
      lanes[event.at("tid").get<std::int64_t>()].spans.push_back(
          {kind_of(name), name, start_s, start_s + length_s});
    }
  }
  for (auto& [tid, lane] : lanes) {
    if (lane.name.empty()) lane.name = fmt::format("thread {}", tid);
    if (!lane.spans.empty()) timeline.lanes.push_back(std::move(lane));
  }
  return timeline;
}

std::string configured(const Journal& journal, const char* pointer) {
  const auto* config = journal.last<ConfigEvent>();
  if (config == nullptr) return {};
  const TraceJson json = TraceJson::parse(config->config.text, nullptr, false);
  const TraceJson::json_pointer place(pointer);
  if (!json.is_object() || !json.contains(place) || !json[place].is_string()) return {};
  return json[place];
}

}  // namespace

StepTimeline step_timeline(const std::string& trace, const std::string& source,
                           double seconds_scale) {
  StepTimeline timeline;
  try {
    timeline = lanes_of(TraceJson::parse(trace), seconds_scale);
    if (timeline.lanes.empty()) timeline.missing = source + " has no spans";
  } catch (const TraceJson::exception& error) {
    timeline.missing = fmt::format("{} is no trace ({})", source, plain_json_words(error.what()));
  }
  timeline.source = source;
  return timeline;
}

std::string configured_trace(const Journal& journal) { return configured(journal, "/trace"); }
std::string configured_cluster(const Journal& journal) {
  return configured(journal, "/cluster/file");
}

}  // namespace heteroperf
