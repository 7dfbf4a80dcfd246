// Messages of a search are JSON texts, because a trial holds a graph and its hyper-parameters,
// which have that form in journals already. A question is told by the keys it has: `end`,
// `measures`, `report`, or none of them for a request. The reason of a lost group is the text of
// any exception and may hold broken UTF-8, which is replaced.
#include "suite/search/search_messages_json.hpp"

#include <nlohmann/json.hpp>

#include "automl/trial_json.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string to_text(const SearchQuestion& question) {
  if (const auto* request = std::get_if<TrialRequest>(&question)) {
    return Json{{"group", request->group.value()}}.dump();
  }
  if (const auto* report = std::get_if<MilestoneReport>(&question)) {
    return Json{{"group", report->group.value()}, {"report", message_to_json(report->report)}}
        .dump();
  }
  if (const auto* entry = std::get_if<MeasureEntry>(&question)) {
    return Json{{"group", entry->group.value()}, {"measures", true}}.dump();
  }
  const auto& end = std::get<GroupEnd>(question);
  const Json text{{"lost_reason", end.lost_reason}, {"steps_done", end.steps_done}};
  return Json{{"group", end.group.value()}, {"end", text}}.dump(-1, ' ', false,
                                                                Json::error_handler_t::replace);
}

SearchQuestion search_question_from_text(const std::string& text) {
  const Json json = Json::parse(text);
  const GroupId group(json.at("group").get<std::int32_t>());
  if (json.contains("end")) {
    return GroupEnd{group, json.at("end").at("lost_reason"), json.at("end").at("steps_done")};
  }
  if (json.contains("measures")) return MeasureEntry{group};
  if (!json.contains("report")) return TrialRequest{group};
  return MilestoneReport{group, message_from_json<TrialReport>(json.at("report"), "trial report")};
}

std::string to_text(const Assignment& assignment) { return message_to_json(assignment).dump(); }
Assignment assignment_from_text(const std::string& text) {
  return message_from_json<Assignment>(Json::parse(text), "assignment");
}

std::string to_text(const Decision& decision) { return message_to_json(decision).dump(); }
Decision decision_from_text(const std::string& text) {
  return message_from_json<Decision>(Json::parse(text), "decision");
}

std::string end_to_text(std::optional<std::int64_t> end_ns) {
  return end_ns ? std::to_string(*end_ns) : std::string();
}
std::optional<std::int64_t> end_from_text(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional<std::int64_t>(std::stoll(text));
}

std::string to_text(const HyperParameters& hyper) { return message_to_json(hyper).dump(); }

}  // namespace heteroperf
