// Connects the trial master to the outside: questions arrive as texts of the control channel,
// outcomes leave as lines of the journal. The master calls back one call after another, in the
// order in which it decides, so the journal has the trials in the master's order, and
// `record_start` and `record_outcome` need no lock for `started_ns_`.
//
// A search by time ends at one moment for all groups. Each group that starts to measure, or leaves
// before it could, is counted in; when the last one has come, the end is set to now plus the
// duration. Until then no group may stop.
//
// Messages of a search are JSON texts, because a trial holds a graph and its hyper-parameters,
// which have that form in journals already. A question is told by the keys it has: `end`,
// `measures`, `report`, or none of them for a request. The reason of a lost group is the text of
// any exception and may hold broken UTF-8, which is replaced.
#include "suite/search/search_service.hpp"

#include <cmath>
#include <string_view>

#include "automl/trial_json.hpp"
#include "metrics/base/clock.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/base/strict_json.hpp"
#include "workloads/graph/model_graph_json.hpp"

namespace heteroperf {
namespace {

/// A search by steps runs on counted operations, so that it repeats exactly; one by time on the
/// wall clock.
MasterOptions master_options(const RunConfig& config, int groups) {
  MasterOptions options;
  options.clock = config.measure.steps > 0 ? MasterClock::counted_operations : MasterClock::wall;
  options.group_ranks.assign(groups, static_cast<std::uint32_t>(config.automl.group_ranks));
  options.steps_per_group = config.measure.steps;
  options.rungs = {config.automl.first_rung_steps, config.automl.reduction, config.automl.rungs};
  return options;
}

TrialEvent trial_event(GroupId group, const Trial& trial) {
  TrialEvent event;
  event.id = trial.id;
  event.parent = trial.parent;
  event.group = group.value();
  event.morph = trial.morph;
  event.graph_hash = trial.graph.hash();
  event.graph.text = graph_to_text(trial.graph);
  event.hyper_parameters.text = message_to_json(trial.hyper).dump();
  event.rung = trial.rung;
  return event;
}

/// A trial's end has the same name in the journal.
TrialStatus status_of(TrialState state) {
  for (const auto status : {TrialStatus::completed, TrialStatus::stopped, TrialStatus::diverged,
                            TrialStatus::failed, TrialStatus::truncated}) {
    if (std::string_view(to_string(status)) == to_string(state)) return status;
  }
  return TrialStatus::failed;
}

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

SearchService::SearchService(const RunConfig& config, const Workload& workload, int groups,
                             JournalWriter& journal)
    : journal_(journal),
      groups_(groups),
      duration_s_(config.measure.duration_s),
      steps_per_group_(config.measure.steps) {
  MasterObserver observer;
  observer.on_trial = [this](GroupId group, const Trial& trial) { record_start(group, trial); };
  observer.on_outcome = [this](GroupId group, const Trial& trial, const TrialOutcome& outcome) {
    record_outcome(group, trial, outcome);
  };
  SearchOptions options;
  options.seed = config.seed;
  // The batch sizes of the search lie around the workload's micro-batch.
  options.space = search_space_around(workload.micro_batch);
  master_ = std::make_unique<TrialMaster>(Search(workload.graph, options),
                                          master_options(config, groups), observer);
  if (config.automl.history.empty()) return;
  master_->restore(read_search_history(config.automl.history));
}

void SearchService::record_start(GroupId group, const Trial& trial) {
  started_ns_[trial.id] = now_ns();
  TrialEvent event = trial_event(group, trial);
  event.t_start_ns = started_ns_[trial.id];
  journal_.append(event);
}

void SearchService::record_outcome(GroupId group, const Trial& trial, const TrialOutcome& outcome) {
  TrialEvent event = trial_event(group, trial);
  event.state = status_of(outcome.state);
  event.steps = outcome.steps;
  event.ops = outcome.ops;
  event.reason = outcome.reason;
  // The rungs that the trial has passed, not the one that it was started for.
  event.rung = static_cast<std::uint32_t>(outcome.milestones.size());
  if (!outcome.milestones.empty()) {
    event.quality = outcome.quality;
    event.loss = outcome.loss;
  }
  event.t_start_ns = started_ns_[trial.id];
  event.t_end_ns = now_ns();
  journal_.append(event);
}

void SearchService::answer(const std::string& text, ControlChannel::Reply reply) {
  const SearchQuestion question = search_question_from_text(text);
  if (const auto* request = std::get_if<TrialRequest>(&question)) {
    const GroupId group = request->group;
    // The reply may come much later, when the master has a trial for this group.
    master_->request_trial(group, [this, group, reply](Assignment assignment) {
      if (!assignment.trial) {
        count_in(group);
        const std::lock_guard lock(end_mutex_);
        if (end_reason_.empty()) end_reason_ = assignment.reason;
      }
      reply(to_text(assignment));
    });
    return;
  }
  if (const auto* milestone = std::get_if<MilestoneReport>(&question)) {
    return master_->report_milestone(milestone->group, milestone->report,
                                     [reply](Decision decision) { reply(to_text(decision)); });
  }
  if (const auto* entry = std::get_if<MeasureEntry>(&question)) {
    return reply(end_to_text(count_in(entry->group)));
  }
  const auto& end = std::get<GroupEnd>(question);
  count_in(end.group);
  if (end.lost_reason.empty()) return master_->group_left(end.group);
  master_->group_lost(end.group, end.lost_reason, end.steps_done);
}

/// The moment at which all groups end; nothing before the last one has come.
std::optional<std::int64_t> SearchService::count_in(GroupId group) {
  const std::lock_guard lock(end_mutex_);
  counted_in_.insert(group.value());
  if (!common_end_ns_ && counted_in_.size() == groups_) {
    common_end_ns_ = now_ns() + std::llround(duration_s_ / nanosecond);
  }
  return common_end_ns_;
}

SearchEnd SearchService::end() const {
  const std::lock_guard lock(end_mutex_);
  if (end_reason_.empty()) return {};
  if (master_->statistics().gave_up) return {SearchEnd::Kind::failed, end_reason_};
  // A search by steps ends when they are used up; one by time that hands out no further trial ended
  // too early.
  return {steps_per_group_ > 0 ? SearchEnd::Kind::ordinary : SearchEnd::Kind::early, end_reason_};
}

void SearchService::close(const std::string& reason) { master_->close(reason); }

void SearchService::record_statistics() {
  const MasterStatistics statistics = master_->statistics();
  journal_.append(SearchEvent{.proposals = statistics.search.proposals,
                              .duplicates = statistics.search.duplicates,
                              .answers = statistics.answers,
                              .groups_lost = statistics.groups_lost,
                              .proposal_p50_s = statistics.proposal_p50.value(),
                              .proposal_p99_s = statistics.proposal_p99.value(),
                              .idle_s = statistics.idle.value()});
}

}  // namespace heteroperf
