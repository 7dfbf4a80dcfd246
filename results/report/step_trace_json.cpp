// Reads a trace as lanes of spans. A trace is JSON in the Trace Event Format: complete events ("X")
// with a start and a duration in microseconds, each on a thread (tid) of a process (pid), and
// metadata events ("M") that name those. A simulated trace has a thread per rank. A measured one
// has a process per rank whose threads share the time of that rank, and many steps; of these the
// last one is taken, and what overlaps with a rank's own work is left out, as a lane shows one
// thing at a time.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "metrics/base/strict_json.hpp"
#include "results/report/report_run.hpp"

namespace heteroperf {
namespace {

using TraceJson = nlohmann::json;
constexpr double microsecond = 1e-6;

/// The kinds of instructions by the beginnings of their names. The first match counts, so a name
/// that begins like a shorter one stands before it.
using NameAndKind = std::pair<std::string_view, const char*>;
constexpr NameAndKind instruction_kinds[] = {{"RECOMPUTE", "recomputation"},
                                             {"REDUCE", "gradient sum"},
                                             {"SEND", "message"},
                                             {"RECV", "message"},
                                             {"OPT", "optimizer"},
                                             {"BW", "backward"},
                                             {"B", "input gradient"},
                                             {"W", "weight gradient"},
                                             {"F", "forward"},
                                             {"compute", "compute"}};

/// Categories of measured events whose names do not tell what they are.
constexpr NameAndKind kinds_of_lanes[] = {{"messages", "message"},    {"sums", "gradient sum"},
                                          {"optimizer", "optimizer"}, {"data", "data"},
                                          {"waiting", "waiting"},     {"other", "other"}};
constexpr const char* step_category = "step";
constexpr const char* overlapped = "overlapped";

/// The category decides where it is one of the table; otherwise the name is that of an instruction.
std::string kind_of(const std::string& category, const std::string& name) {
  for (const auto& [lane, kind] : kinds_of_lanes) {
    if (category == lane) return kind;
  }
  for (const auto& [prefix, kind] : instruction_kinds) {
    if (name.starts_with(prefix)) return kind;
  }
  return "other";
}

/// Process and thread of an event.
using TracePlace = std::pair<std::int64_t, std::int64_t>;

/// An absent number counts as 0.
TracePlace place_of(const TraceJson& event) {
  return {whole_number_or_0<std::int64_t>(event, "pid"),
          whole_number_or_0<std::int64_t>(event, "tid")};
}

/// The names that metadata events give to processes (thread −1) and threads.
std::map<TracePlace, std::string> names_of(const TraceJson& events) {
  std::map<TracePlace, std::string> names;
  for (const TraceJson& event : events) {
    if (event.at("ph") != "M") continue;
    TracePlace place = place_of(event);
    if (event.at("name") == "process_name") place.second = -1;
    if (place.second >= 0 && event.at("name") != "thread_name") continue;
    if (event.at("args").contains("name")) names[place] = event.at("args").at("name");
  }
  return names;
}

/// The last step of a measured trace; nothing where the trace does not tell steps apart.
std::optional<std::uint64_t> last_step(const TraceJson& events) {
  std::optional<std::uint64_t> last;
  for (const TraceJson& event : events) {
    if (event.value("cat", "") != step_category) continue;
    last = std::max(last.value_or(0), whole_number<std::uint64_t>(event.at("args").at("step")));
  }
  return last;
}

/// A lane per thread of a simulated trace, or per process of a measured one. `scale` turns a second
/// of the trace into seconds of the report. Lanes come in the order of their places.
StepTimeline lanes_of(const TraceJson& trace, double scale) {
  const TraceJson& events = trace.at("traceEvents");
  const auto names = names_of(events);
  const std::optional<std::uint64_t> step = last_step(events);
  const auto name_of = [&](TracePlace place) {
    const auto entry = names.find(place);
    return entry == names.end() ? fmt::format("thread {}", place.second) : entry->second;
  };
  std::map<TracePlace, StepLane> lanes;
  for (const TraceJson& event : events) {
    const std::string category = event.value("cat", "");
    if (event.at("ph") != "X" || category == step_category) continue;
    TracePlace place = place_of(event);
    if (step) {
      if (event.at("args").at("step") != *step || category.starts_with(overlapped)) continue;
      place.second = -1;
    }
    StepLane& lane = lanes[place];
    if (lane.name.empty()) lane.name = name_of(place);
    const std::string name = event.at("name");
    const double start_s = event.at("ts").get<double>() * microsecond * scale;
    const double length_s = event.at("dur").get<double>() * microsecond * scale;
    lane.spans.push_back({kind_of(category, name), name, start_s, start_s + length_s});
  }
  StepTimeline timeline;
  for (auto& [place, lane] : lanes) timeline.lanes.push_back(std::move(lane));
  return timeline;
}

/// A text of the run's configuration; empty where it is not set or the journal ended before.
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
    if (timeline.lanes.empty()) timeline.missing = "no span is in " + source;
  } catch (const TraceJson::exception& error) {
    timeline.missing = fmt::format("{} is no trace ({})", source, plain_json_words(error.what()));
  } catch (const UserError& error) {
    timeline.missing = fmt::format("{} is no trace ({})", source, error.what());
  }
  timeline.source = source;
  return timeline;
}

std::string configured_trace(const Journal& journal) { return configured(journal, "/trace"); }
std::string configured_cluster(const Journal& journal) {
  return configured(journal, "/cluster/file");
}

}  // namespace heteroperf
