// Messages of a search are JSON texts, because a trial holds a graph and its hyper-parameters,
// which have that form in journals already. A question is told by the keys it has: `end`,
// `measures`, `report`, or none of them for a request. The reason of a lost group is the text of
// any exception and may hold broken UTF-8, which is replaced.
//
// The second half reads trials back out of a journal. The line that begins a trial has the graph,
// the line that ends it has the outcome, and its evaluations lie between them.
#include "suite/search/search_messages_json.hpp"

#include <map>
#include <nlohmann/json.hpp>

#include "automl/trial_json.hpp"
#include "workloads/graph/model_graph_json.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

/// Collects what the journal tells of each trial, line by line.
class HistoryReader {
 public:
  void take(const TrialEvent& event) {
    // Only the first line with a graph has its text; later ones name the hash.
    if (!event.graph.text.empty()) graphs_[event.graph_hash] = event.graph.text;
    if (event.state == TrialStatus::running) return;
    HistoryEntry entry;
    entry.trial = trial_of(event);
    entry.outcome = outcome_of(event);
    entries_.push_back(std::move(entry));
  }
  void take(const EvalEvent& event) {
    if (event.trial) milestones_[*event.trial].push_back({event.accuracy, event.loss});
  }
  std::vector<HistoryEntry> entries() && { return std::move(entries_); }

 private:
  Trial trial_of(const TrialEvent& event) const {
    Trial trial;
    trial.id = event.id;
    trial.parent = event.parent;
    trial.morph = event.morph;
    trial.graph = graph_from_text(graphs_.at(event.graph_hash), "trial graph");
    trial.hyper = hyper_parameters_from_json(Json::parse(event.hyper_parameters.text));
    trial.rung = event.rung;
    trial.steps = event.steps;
    return trial;
  }

  TrialOutcome outcome_of(const TrialEvent& event) {
    TrialOutcome outcome;
    outcome.id = event.id;
    outcome.state = parse_trial_state(to_string(event.state));
    outcome.quality = event.quality.value_or(0.0);
    if (event.loss) outcome.loss = *event.loss;
    outcome.steps = event.steps;
    outcome.ops = event.ops;
    outcome.reason = event.reason;
    outcome.milestones = milestones_[event.id];
    return outcome;
  }

  std::map<std::string, std::string> graphs_;
  std::map<std::uint64_t, std::vector<TrialOutcome::Milestone>> milestones_;
  std::vector<HistoryEntry> entries_;
};

}  // namespace

std::string to_text(const SearchQuestion& question) {
  if (const auto* request = std::get_if<TrialRequest>(&question)) {
    return Json{{"group", request->group.value()}}.dump();
  }
  if (const auto* report = std::get_if<MilestoneReport>(&question)) {
    return Json{{"group", report->group.value()}, {"report", trial_report_to_json(report->report)}}
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
  return MilestoneReport{group, trial_report_from_json(json.at("report"))};
}

std::string to_text(const Assignment& assignment) { return assignment_to_json(assignment).dump(); }
Assignment assignment_from_text(const std::string& text) {
  return assignment_from_json(Json::parse(text));
}

std::string to_text(const Decision& decision) { return decision_to_json(decision).dump(); }
Decision decision_from_text(const std::string& text) {
  return decision_from_json(Json::parse(text));
}

std::string end_to_text(std::optional<std::int64_t> end_ns) {
  return end_ns ? std::to_string(*end_ns) : std::string();
}
std::optional<std::int64_t> end_from_text(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional<std::int64_t>(std::stoll(text));
}

std::string to_text(const HyperParameters& hyper) { return hyper_parameters_to_json(hyper).dump(); }

std::vector<HistoryEntry> history_from_journal(const Journal& journal) {
  HistoryReader reader;
  for (const JournalLine& line : journal.lines) {
    if (const auto* trial = std::get_if<TrialEvent>(&line.event)) reader.take(*trial);
    if (const auto* eval = std::get_if<EvalEvent>(&line.event)) reader.take(*eval);
  }
  return std::move(reader).entries();
}

}  // namespace heteroperf
