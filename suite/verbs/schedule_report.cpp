// Checks and times one schedule, and prints the result as a table or a document. A schedule that is
// not complete, or that cannot end, has no times: it is refused with the checks' reasons and, for a
// deadlock, the circle of instructions that wait for each other. Breaking the memory limit is
// different: such a schedule can be timed and is shown as it is.
//
// The *bubble rate* is the share of time in which ranks do not compute, once over the makespan and
// once over each rank's own span. The *lower bound* is what no order can beat; a timeline below it
// would be a bug and ends the program.
#include "suite/verbs/schedule_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "runners/schedule/formats/schedule_json.hpp"
#include "runners/schedule/lower/lowering.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t most_rows = 32;

/// Throws the reasons where the schedule cannot be timed.
void require_runnable(const ScheduleChecks& checks) {
  const bool ends = checks.deadlock_free != DeadlockFreedom::none;
  if (checks.complete && checks.ordered && checks.placed && checks.matched && ends) return;
  throw UserError(checks.problems);
}

const char* verdict(bool ok) { return ok ? "ok" : "FAILED"; }

/// One line for all checks, then what is wrong, in words.
std::string checks_text(const ScheduleResult& result) {
  const ScheduleChecks& c = result.checks;
  std::string text = fmt::format(
      "checks          complete {}, ordered {}, placed {}, matched {}, collectives {}, steps {}\n"
      "deadlock-free   {}\n",
      verdict(c.complete), verdict(c.ordered), verdict(c.placed), verdict(c.matched),
      verdict(c.collectives), verdict(c.stepped), to_string(c.deadlock_free));
  // The cycle that bars the next level of freedom from deadlock; a schedule that ends may have one.
  if (!c.cycle.empty()) text += fmt::format("  cycle         {}\n", fmt::join(c.cycle, " -> "));
  if (result.memory_limit) {
    text += fmt::format(
        "memory          {} (limit {:g}, peak {:g})\n", verdict(c.memory_ok), *result.memory_limit,
        *std::max_element(result.report.peak_memory.begin(), result.report.peak_memory.end()));
  }
  for (const Problem& problem : c.problems) text += "  " + problem.text() + "\n";
  return text;
}

/// Idle time is split by its cause: warm-up, dependency, communication, imbalance.
std::string ranks_text(const ScheduleReport& report) {
  std::string text = fmt::format("{:<5}{:>11}{:>11}{:>11}{:>11}{:>14}{:>11}{:>12}{:>12}\n", "rank",
                                 "busy", "idle", "warm-up", "dependency", "communication",
                                 "imbalance", "activations", "peak memory");
  for (std::size_t i = 0; i < std::min(most_rows, report.ranks.size()); ++i) {
    const RankTimes& r = report.ranks[i];
    text += fmt::format(
        "{:<5}{:>11.6g}{:>11.6g}{:>11.6g}{:>11.6g}{:>14.6g}{:>11.6g}{:>12.5g}{:>12.5g}\n", i,
        r.busy, r.idle, r.warm_up, r.dependency, r.communication, r.imbalance,
        report.peak_activations[i], report.peak_memory[i]);
  }
  // A terminal shows no more; the document has all.
  if (report.ranks.size() > most_rows) {
    text += fmt::format("… {} more ranks (--json shows them)\n", report.ranks.size() - most_rows);
  }
  return text;
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

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

/// Times have the unit of the costs; memory counts activations of a micro-batch.
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

/// The critical path: the chain of instructions that makes the step as long as it is.
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

ScheduleResult evaluate_schedule(Schedule schedule, const SimulationOptions& options,
                                 std::optional<double> memory_limit) {
  ScheduleResult result;
  result.model = options.model;
  result.memory_limit = memory_limit;
  // An imported schedule may have its messages already.
  const bool lowered = schedule.level == ScheduleLevel::lowered;
  result.lowered = lowered ? schedule : lower(schedule);
  result.schedule = std::move(schedule);
  result.checks = check_schedule(result.lowered, memory_limit);
  require_runnable(result.checks);
  result.timeline = simulate(result.lowered, options);
  result.report = report(result.lowered, result.timeline);
  // Sums of doubles may round a little below the bound.
  HETEROPERF_ENSURE(result.report.makespan >= result.report.lower_bound * (1 - 1e-9));
  return result;
}

std::string schedule_table(const ScheduleResult& result) {
  const Schedule& s = result.schedule;
  const ScheduleReport& r = result.report;
  std::string text = fmt::format(
      "{}  {} ranks, {} micro-batches, {} chunks, {} parts, {} instructions ({} lowered)\n", s.name,
      s.graph.ranks, s.graph.micro_batches, s.chunks, s.graph.parts, instruction_count(s),
      instruction_count(result.lowered));
  text += fmt::format(
      "makespan        {:.6g}  bubble rate {:.4f}  lower bound {:.6g} (+{:.2f} %)\n"
      "longest span    {:.6g}  bubble rate {:.4f}\n"
      "weight copies   {:g}\n",
      r.makespan, r.bubble_rate_makespan, r.lower_bound,
      r.lower_bound > 0 ? std::max(0.0, 100 * (r.makespan / r.lower_bound - 1)) : 0, r.longest_span,
      r.bubble_rate_span, s.graph.weight_copies());
  if (result.search) {
    text +=
        fmt::format("search          {} orders timed in {:.2f} s{}{}\n", result.search->evaluations,
                    result.search->seconds, result.search->proven ? ", the bound is reached" : "",
                    result.search->out_of_time ? ", cut short by its time limit" : "");
  }
  return text + ranks_text(r) + checks_text(result);
}

std::string schedules_table(const std::vector<ScheduleResult>& results,
                            const std::vector<SkippedSchedule>& skipped) {
  std::string text = fmt::format("{:<18}{:>7}{:>12}{:>10}{:>12}{:>10}{:>13}{:>10}{:>9}  {}\n",
                                 "schedule", "chunks", "makespan", "bubble", "span", "bubble",
                                 "activations", "memory", "weights", "deadlock-free");
  for (const ScheduleResult& result : results) {
    const ScheduleReport& r = result.report;
    text += fmt::format(
        "{:<18}{:>7}{:>12.6g}{:>10.4f}{:>12.6g}{:>10.4f}{:>13.5g}{:>10.5g}{:>9g}  {}\n",
        result.schedule.name, result.schedule.chunks, r.makespan, r.bubble_rate_makespan,
        r.longest_span, r.bubble_rate_span, largest(r.peak_activations), largest(r.peak_memory),
        result.schedule.graph.weight_copies(), to_string(result.checks.deadlock_free));
  }
  for (const SkippedSchedule& one : skipped) {
    text += fmt::format("{:<18}left out: {}\n", one.name, one.reason);
  }
  return text;
}

std::string simulation_table(const ScheduleResult& result, double wall_s) {
  const ScheduleReport& r = result.report;
  return fmt::format(
             "{}  model {}, {} instructions in {:.3f} s\n"
             "step time       {:.6g}  throughput {:.6g} micro-batches per unit of time\n"
             "bubble rate     {:.4f} of the makespan, {:.4f} of the longest span\n",
             result.schedule.name, to_string(result.model), instruction_count(result.lowered),
             wall_s, r.makespan,
             r.makespan > 0 ? result.schedule.graph.micro_batches / r.makespan : 0,
             r.bubble_rate_makespan, r.bubble_rate_span) +
         ranks_text(r) + checks_text(result);
}

std::string schedule_json_text(const ScheduleResult& result) {
  // The programs may be long: the native form is put behind the report as it is.
  std::string text = report_json(result).dump(2);
  // Removes the last brace, so that the keys of the native form can follow.
  text.erase(text.rfind('\n'));
  return text + ",\n" + schedule_to_text(result.schedule).substr(1);
}

std::string schedules_json_text(const std::vector<ScheduleResult>& results,
                                const std::vector<SkippedSchedule>& skipped) {
  Json json = new_document("heteroperf-schedules");
  json.update({{"schedules", Json::array()}, {"skipped", Json::array()}});
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
  Json json = new_document("heteroperf-simulation");
  json.update({{"name", result.schedule.name},
               {"model", to_string(result.model)},
               {"step_time_s", step},
               {"throughput", step > 0 ? result.schedule.graph.micro_batches / step : 0},
               {"bubble_rate_makespan", report.bubble_rate_makespan},
               {"bubble_rate_span", report.bubble_rate_span},
               {"per_rank", ranks},
               {"critical_path", path_json(result)},
               {"instructions", instruction_count(result.lowered)},
               {"checks", checks_json(result.checks)},
               {"wall_s", wall_s}});
  return json.dump(2) + "\n";
}

}  // namespace heteroperf
