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
// which have that form in journals already. The reason of a lost group is the text of any exception
// and may hold broken UTF-8, which is replaced.
#include "suite/search/search_service.hpp"

#include <cmath>

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
  const AutomlConfig& automl = config.automl;
  const auto group_ranks = static_cast<std::uint32_t>(automl.group_ranks);
  return {.clock = config.measure.steps > 0 ? MasterClock::counted_operations : MasterClock::wall,
          .group_ranks = std::vector<std::uint32_t>(groups, group_ranks),
          .steps_per_group = config.measure.steps,
          .rungs = {automl.first_rung_steps, automl.reduction, automl.rungs}};
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

SearchQuestion question_from_text(const std::string& text) {
  const Json json = Json::parse(text);
  SearchQuestion question{GroupId(json.at("group").get<std::int32_t>())};
  question.measures = json.at("measures");
  if (json.contains("report")) {
    question.report = message_from_json<TrialReport>(json.at("report"), "trial report");
  }
  if (json.contains("end")) question.end.emplace(json.at("end")[0], json.at("end")[1]);
  return question;
}

}  // namespace

std::string to_text(const SearchQuestion& question) {
  Json json{{"group", question.group.value()}, {"measures", question.measures}};
  if (question.report) json["report"] = message_to_json(*question.report);
  if (question.end) json["end"] = Json::array({question.end->first, question.end->second});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

SearchService::SearchService(const RunConfig& config, const Workload& workload, int groups,
                             JournalWriter& journal)
    : journal_(journal), groups_(groups), measure_(config.measure) {
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
  // A trial's end has the same name in the journal.
  event.state = parse_value_name<TrialStatus>("trial status", to_string(outcome.state));
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
  const auto [group, report, measures, end] = question_from_text(text);
  if (report) {
    return master_->report_milestone(
        group, *report, [reply](const Decision& d) { reply(message_to_json(d).dump()); });
  }
  if (measures) {
    const auto end_ns = count_in(group);
    return reply(end_ns ? std::to_string(*end_ns) : "");
  }
  if (end) {
    count_in(group);
    if (end->first.empty()) return master_->group_left(group);
    return master_->group_lost(group, end->first, end->second);
  }
  // The reply may come much later, when the master has a trial for this group.
  master_->request_trial(group, [this, asking = group, reply](const Assignment& assignment) {
    if (!assignment.trial) {
      count_in(asking);
      const std::lock_guard lock(end_mutex_);
      if (end_reason_.empty()) end_reason_ = assignment.reason;
    }
    reply(message_to_json(assignment).dump());
  });
}

/// The moment at which all groups end; nothing before the last one has come.
std::optional<std::int64_t> SearchService::count_in(GroupId group) {
  const std::lock_guard lock(end_mutex_);
  counted_in_.insert(group.value());
  if (!common_end_ns_ && counted_in_.size() == groups_) {
    common_end_ns_ = now_ns() + std::llround(measure_.duration_s / nanosecond);
  }
  return common_end_ns_;
}

SearchEnd SearchService::end() const {
  const std::lock_guard lock(end_mutex_);
  if (end_reason_.empty()) return {};
  if (master_->statistics().gave_up) return {SearchEnd::Kind::failed, end_reason_};
  // A search by steps ends when they are used up; one by time that hands out no further trial ended
  // too early.
  return {measure_.steps > 0 ? SearchEnd::Kind::ordinary : SearchEnd::Kind::early, end_reason_};
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
