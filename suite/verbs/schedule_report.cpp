// Checks and times one schedule, and makes a document of the result. A schedule that is
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

#include <algorithm>
#include <numeric>
#include <set>

#include "metrics/base/error.hpp"
#include "results/text/number_text.hpp"
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

Datum verdict(bool ok) {
  return Datum(ok).as(ok ? "ok" : "FAILED").judged(ok ? Tone::good : Tone::bad);
}

/// A time in the unit of the costs, or a number of activations of a micro-batch.
Datum in_costs(double number) {
  constexpr double long_number = 1e6;
  return Datum(number).as(number < long_number ? fmt::format("{:.6g}", number)
                                               : fmt::format("{:.0f}", number));
}

/// The numbers of all ranks; people see the largest.
Datum largest(const std::vector<double>& values) {
  const auto most = std::max_element(values.begin(), values.end());
  return Datum(values).as(most == values.end() ? "" : in_costs(*most).shown);
}

/// All checks, then what is wrong, in words.
void add_checks(Document& document, const ScheduleResult& result) {
  const ScheduleChecks& checks = result.checks;
  const auto add = [&](const char* key, const char* label, Datum value, std::string hint = {}) {
    document.field(std::string("checks.") + key, label, Unit::none, std::move(value),
                   std::move(hint));
  };
  add("complete", "complete", verdict(checks.complete));
  add("ordered", "ordered", verdict(checks.ordered));
  add("placed", "placed", verdict(checks.placed));
  add("matched", "matched", verdict(checks.matched));
  add("deadlock_free", "deadlock-free", to_string(checks.deadlock_free));
  add("collectives_ordered", "collectives", verdict(checks.collectives));
  add("stepped", "steps", verdict(checks.stepped));
  add("memory_ok", "memory", verdict(checks.memory_ok),
      result.memory_limit ? fmt::format("limit {:g}", *result.memory_limit) : "");
  // The cycle that bars the next level of freedom from deadlock; a schedule that ends may have one.
  add("cycle", "cycle", Datum(checks.cycle).as(fmt::format("{}", fmt::join(checks.cycle, " -> "))));
  std::vector<Datum> problems;
  for (const Problem& problem : checks.problems) problems.emplace_back(problem.text());
  add("problems", "problems", std::move(problems));
}

/// Idle time is split by its cause: warm-up, dependency, communication, imbalance.
Table rank_times(const ScheduleReport& report) {
  constexpr Audience people = Audience::people;
  std::vector<std::size_t> ranks(report.ranks.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  const auto time = [&](double RankTimes::*part) {
    return [&report, part](std::size_t rank) { return in_costs(report.ranks[rank].*part); };
  };
  const auto peak = [](const std::vector<double>& peaks) {
    return [&peaks](std::size_t rank) { return in_costs(peaks[rank]); };
  };
  return table_of("per_rank", ranks,
                  {{{"", "rank", Unit::none, people}, [](std::size_t rank) { return rank; }},
                   {{"compute_s", "busy", Unit::seconds}, time(&RankTimes::busy)},
                   {{"communication_exposed_s", "communication", Unit::seconds},
                    time(&RankTimes::communication)},
                   {{"idle_s", "idle", Unit::seconds}, time(&RankTimes::idle)},
                   {{"", "warm-up", Unit::seconds, people}, time(&RankTimes::warm_up)},
                   {{"", "dependency", Unit::seconds, people}, time(&RankTimes::dependency)},
                   {{"", "imbalance", Unit::seconds, people}, time(&RankTimes::imbalance)},
                   {{"peak_activations", "activations", Unit::none}, peak(report.peak_activations)},
                   {{"peak_memory", "peak memory", Unit::none}, peak(report.peak_memory)}},
                  Audience::programs);
}

/// A terminal shows only the first ranks; JSON documents have all.
void show_ranks(Document& document, Table table) {
  const std::size_t ranks = table.rows.size();
  table.rows.resize(std::min(most_rows, ranks));
  table.key.clear();
  table.audience = Audience::people;
  document.table(std::move(table));
  if (ranks > most_rows) {
    document.line(fmt::format("… {} more ranks (--json shows them)", ranks - most_rows));
  }
}

/// Says why a placement was chosen, or why it was not; `chosen` is the one that was.
std::string reason_of(const PlacedCandidate& candidate, const PlacedCandidate& chosen) {
  if (&candidate == &chosen) {
    return chosen.objective <= chosen.lower_bound * (1 + 1e-9)
               ? "chosen: it reaches its bound"
               : "chosen: no order of another placement was found to end earlier";
  }
  if (candidate.lower_bound > chosen.objective) return "none of its orders can end as early";
  return candidate.objective > chosen.objective ? "no order was found that ends as early"
                                                : "as good, but not simpler";
}

void show_placements(Document& document, const std::vector<PlacedCandidate>& placements) {
  if (placements.empty()) return;
  document.table(
      table_of("placements", placements,
               {{{"placement", "placement", Unit::none}, &PlacedCandidate::placement},
                {{"objective", "ends at", Unit::none},
                 [](const PlacedCandidate& candidate) { return in_costs(candidate.objective); }},
                {{"lower_bound", "lower bound", Unit::none},
                 [](const PlacedCandidate& candidate) { return in_costs(candidate.lower_bound); }},
                {{"why", "why", Unit::none}, [&](const PlacedCandidate& candidate) {
                   return reason_of(candidate, placements.front());
                 }}}));
}

/// Times have the unit of the costs; memory counts activations of a micro-batch. All schedules have
/// the same fields, of which some may be absent.
void add_report(Document& document, const ScheduleResult& result) {
  const PipelineGraph& graph = result.schedule.graph;
  const ScheduleReport& report = result.report;
  document.data("ranks", "ranks", Unit::none, graph.ranks);
  document.data("micro_batches", "micro-batches", Unit::none, graph.micro_batches);
  document.data("parts", "parts", Unit::none, graph.parts);
  document.data("instructions", "instructions", Unit::none, instruction_count(result.schedule));
  document.data("instructions_lowered", "instructions with messages", Unit::none,
                instruction_count(result.lowered));
  document.data("model", "model of the network", Unit::none, to_string(result.model));
  document.field("makespan", "makespan", Unit::none, in_costs(report.makespan));
  document.field("longest_span", "longest span", Unit::none, in_costs(report.longest_span));
  document.field("bubble_rate_makespan", "bubble rate", Unit::fraction,
                 report.bubble_rate_makespan);
  document.field("bubble_rate_span", "bubble of span", Unit::fraction, report.bubble_rate_span);
  std::vector<Datum> idle, split;
  for (const RankTimes& rank : report.ranks) {
    idle.emplace_back(rank.idle);
    split.emplace_back(std::vector<Member>{{"warm_up", rank.warm_up},
                                           {"dependency", rank.dependency},
                                           {"communication", rank.communication},
                                           {"imbalance", rank.imbalance}});
  }
  document.data("idle", "idle time by rank", Unit::none, std::move(idle));
  document.data("idle_split", "idle time by rank and cause", Unit::none, std::move(split));
  document.field("peak_activations", "activations", Unit::none, largest(report.peak_activations));
  document.field("peak_memory", "peak memory", Unit::none, largest(report.peak_memory));
  document.field("weight_copies", "weight copies", Unit::none, graph.weight_copies());
  const double above = report.lower_bound > 0 ? report.makespan / report.lower_bound : 1;
  document.field("lower_bound", "lower bound", Unit::none, in_costs(report.lower_bound),
                 change_text(std::max(1.0, above)) + " to the makespan");
  document.data("memory_limit", "limit of the memory", Unit::none, result.memory_limit);
  const auto effort = [&](auto member) {
    return result.search ? Datum((*result.search).*member) : Datum();
  };
  document.field("search.evaluations", "orders timed", Unit::none,
                 effort(&SearchEffort::evaluations));
  document.field("search.wall_s", "search", Unit::seconds, effort(&SearchEffort::seconds));
  document.field("search.proven", "bound reached", Unit::none, effort(&SearchEffort::proven));
  document.field("search.out_of_time", "cut by its time limit", Unit::none,
                 effort(&SearchEffort::out_of_time));
  add_checks(document, result);
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

Document schedule_document(const ScheduleResult& result) {
  const Schedule& schedule = result.schedule;
  Document document{"heteroperf-schedule"};
  document.line(fmt::format(
      "{}  {} ranks, {} micro-batches, {} chunks, {} parts, {} instructions ({} lowered)",
      schedule.name, schedule.graph.ranks, schedule.graph.micro_batches, schedule.chunks,
      schedule.graph.parts, instruction_count(schedule), instruction_count(result.lowered)));
  add_report(document, result);
  show_placements(document, result.placements);
  show_ranks(document, rank_times(result.report));
  return document;
}

std::string schedule_json_text(const ScheduleResult& result) {
  std::string text = json_text(schedule_document(result));
  // The programs may be long: the native form, which has the document's `_format`, is put behind
  // the report as it is.
  text.erase(2, text.find("  \"ranks\"") - 2);
  text.erase(text.rfind("\n}"));
  return text + ",\n" + schedule_to_text(result.schedule).substr(1);
}

/// The fields of each schedule are a row; people see those that schedules differ in.
Document schedules_document(const std::vector<ScheduleResult>& results,
                            const std::vector<SkippedSchedule>& skipped) {
  const std::set<std::string> compared{"name",          "chunks",
                                       "makespan",      "bubble_rate_makespan",
                                       "longest_span",  "bubble_rate_span",
                                       "peak_memory",   "peak_activations",
                                       "weight_copies", "checks.deadlock_free"};
  Table table{.key = "schedules", .columns = {}};
  for (const ScheduleResult& result : results) {
    Document row;
    row.field("name", "schedule", Unit::none, result.schedule.name);
    row.field("chunks", "chunks", Unit::none, result.schedule.chunks);
    row.field("hash", "hash", Unit::none, schedule_hash(result.schedule).hex());
    add_report(row, result);
    table.columns.clear();
    std::vector<Datum>& values = table.rows.emplace_back();
    for (const auto& part : row.parts) {
      const auto& field = std::get<DocumentField>(part);
      const bool shown = compared.contains(field.key);
      table.columns.push_back(
          {field.key, field.label, field.unit, shown ? Audience::everyone : Audience::programs});
      values.push_back(field.value);
    }
  }
  Document document{"heteroperf-schedules"};
  document.table(std::move(table));
  for (const SkippedSchedule& schedule : skipped) {
    document.field("", schedule.name, Unit::none, "left out: " + schedule.reason);
  }
  document.table(table_of("skipped", skipped,
                          {{{"name", "schedule", Unit::none}, &SkippedSchedule::name},
                           {{"reason", "left out", Unit::none}, &SkippedSchedule::reason}},
                          Audience::programs));
  return document;
}

void add_pipeline(Document& document, const ScheduleReport& report, const Schedule& schedule,
                  const char* place, Table ranks, const std::string& of) {
  document.field("bubble_rate_makespan", "bubble rate", Unit::fraction, report.bubble_rate_makespan,
                 "of the makespan" + of);
  document.field("bubble_rate_span", "bubble of span", Unit::fraction, report.bubble_rate_span,
                 "of the longest span" + of);
  document.table(std::move(ranks));
  document.table(table_of(
      "critical_path", report.critical_path,
      {{{place, place, Unit::none}, &PathStep::rank},
       {{"instruction", "instruction", Unit::none},
        [&](const PathStep& step) { return to_text(schedule.programs[step.rank][step.index]); }},
       {{"start", "start", Unit::seconds}, [](const PathStep& step) { return step.span.start; }},
       {{"end", "end", Unit::seconds}, [](const PathStep& step) { return step.span.end; }}},
      Audience::programs));
  document.field("instructions", "instructions", Unit::none, instruction_count(schedule));
}

Document simulation_document(const ScheduleResult& result, double wall_s) {
  const ScheduleReport& report = result.report;
  const double step = report.makespan;
  const double throughput = step > 0 ? result.schedule.graph.micro_batches / step : 0;
  Document document{"heteroperf-simulation"};
  document.field("name", "schedule", Unit::none, result.schedule.name);
  document.field("model", "model", Unit::none, to_string(result.model));
  document.field("step_time_s", "step time", Unit::seconds, in_costs(step));
  document.field("throughput", "throughput", Unit::none, throughput,
                 "micro-batches per unit of time");
  const Table ranks = rank_times(report);
  add_pipeline(document, report, result.lowered, "rank", ranks);
  add_checks(document, result);
  document.field("wall_s", "simulated in", Unit::seconds, wall_s);
  show_ranks(document, ranks);
  return document;
}

}  // namespace heteroperf
