#include <nlohmann/json.hpp>

#include "runners/schedule/formats/schedule_json.hpp"
#include "suite/verbs/schedule_report.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

Json checks_json(const ScheduleChecks& checks) {
  Json problems = Json::array();
  for (const Problem& problem : checks.problems) problems.push_back(problem.text());
  return {{"complete", checks.complete},
          {"ordered", checks.ordered},
          {"placed", checks.placed},
          {"matched", checks.matched},
          {"deadlock_free", to_string(checks.deadlock_free)},
          {"collectives_ordered", checks.collectives},
          {"stepped", checks.stepped},
          {"memory_ok", checks.memory_ok},
          {"cycle", checks.cycle},
          {"problems", problems}};
}

Json report_json(const ScheduleResult& result) {
  const Schedule& schedule = result.schedule;
  const ScheduleReport& report = result.report;
  Json json{{"ranks", schedule.graph.ranks},
            {"micro_batches", schedule.graph.micro_batches},
            {"parts", schedule.graph.parts},
            {"instructions", instruction_count(schedule)},
            {"instructions_lowered", instruction_count(result.lowered)},
            {"model", to_string(result.model)},
            {"makespan", report.makespan},
            {"longest_span", report.longest_span},
            {"bubble_rate_makespan", report.bubble_rate_makespan},
            {"bubble_rate_span", report.bubble_rate_span}};
  Json idle = Json::array(), split = Json::array();
  for (const RankTimes& rank : report.ranks) {
    idle.push_back(rank.idle);
    split.push_back({{"warm_up", rank.warm_up},
                     {"dependency", rank.dependency},
                     {"communication", rank.communication},
                     {"imbalance", rank.imbalance}});
  }
  json["idle"] = idle;
  json["idle_split"] = split;
  json["peak_activations"] = report.peak_activations;
  json["peak_memory"] = report.peak_memory;
  json["weight_copies"] = schedule.graph.weight_copies();
  json["lower_bound"] = report.lower_bound;
  if (result.memory_limit) json["memory_limit"] = *result.memory_limit;
  if (result.search) {
    json["search"] = {{"evaluations", result.search->evaluations},
                      {"wall_s", result.search->seconds},
                      {"proven", result.search->proven},
                      {"out_of_time", result.search->out_of_time}};
  }
  json["checks"] = checks_json(result.checks);
  return json;
}

Json path_json(const ScheduleResult& result) {
  Json path = Json::array();
  for (const PathStep& step : result.report.critical_path) {
    path.push_back({{"rank", step.rank},
                    {"instruction", to_text(result.lowered.programs[step.rank][step.index])},
                    {"start", step.span.start},
                    {"end", step.span.end}});
  }
  return path;
}

}  // namespace

std::string schedule_json_text(const ScheduleResult& result) {
  // The programs may be long: the native form is put behind the report as it is.
  std::string text = report_json(result).dump(2);
  text.erase(text.rfind('\n'));
  return text + ",\n" + schedule_to_text(result.schedule).substr(1);
}

std::string schedules_json_text(const std::vector<ScheduleResult>& results,
                                const std::vector<SkippedSchedule>& skipped) {
  Json json{{"schedules", Json::array()}, {"skipped", Json::array()}};
  for (const ScheduleResult& result : results) {
    Json one{{"name", result.schedule.name},
             {"chunks", result.schedule.chunks},
             {"hash", schedule_hash(result.schedule).hex()}};
    one.update(report_json(result));
    json["schedules"].push_back(one);
  }
  for (const SkippedSchedule& one : skipped) {
    json["skipped"].push_back({{"name", one.name}, {"reason", one.reason}});
  }
  return json.dump(2) + "\n";
}

std::string simulation_json_text(const ScheduleResult& result, double wall_s) {
  const ScheduleReport& report = result.report;
  Json ranks = Json::array();
  for (std::size_t i = 0; i < report.ranks.size(); ++i) {
    ranks.push_back({{"compute_s", report.ranks[i].busy},
                     {"communication_exposed_s", report.ranks[i].communication},
                     {"idle_s", report.ranks[i].idle},
                     {"peak_activations", report.peak_activations[i]},
                     {"peak_memory", report.peak_memory[i]}});
  }
  const double step = report.makespan;
  Json json{{"name", result.schedule.name},
            {"model", to_string(result.model)},
            {"step_time_s", step},
            {"throughput", step > 0 ? result.schedule.graph.micro_batches / step : 0},
            {"bubble_rate_makespan", report.bubble_rate_makespan},
            {"bubble_rate_span", report.bubble_rate_span},
            {"per_rank", ranks},
            {"critical_path", path_json(result)},
            {"instructions", instruction_count(result.lowered)},
            {"checks", checks_json(result.checks)},
            {"wall_s", wall_s}};
  return json.dump(2) + "\n";
}

}  // namespace heteroperf
