// The answer of `plan`. People read the stages with their replicas and their fullest rank, then a
// line for each fact, with its name in a column of its own. The order is that of the questions of a
// reader: how fast, limited by what, how far from the best possible, how sure are the rates,
// compared with what. Programs find the same facts in full, with the memory of each rank and the
// rate of each operation.
//
// HSR is the throughput of the mixed machine over the sum of its
// classes alone; 1 means that mixing loses nothing.
#include "suite/planning/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "metrics/base/id.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/score.hpp"
#include "results/text/number_text.hpp"
#include "suite/planning/plan_simulation.hpp"

namespace heteroperf {
namespace {

/// "12 x a100 tp4 x3, 5 x v100 x2": replicas, class, degree, samples each.
std::string replicas_text(const PlanStage& stage) {
  const auto& replicas = stage.replicas;
  std::string text;
  for (ReplicaId i; replicas.contains(i);) {
    const StageReplica& first = replicas[i];
    ReplicaId end = i;
    // Equal neighbours are told once, with their number.
    while (replicas.contains(end) && replicas[end].micro_batch == first.micro_batch &&
           replicas[end].device_class == first.device_class &&
           replicas[end].ranks.size() == first.ranks.size() &&
           replicas[end].part.parts == first.part.parts) {
      ++end;
    }
    const auto degree = [](const char* name, std::int64_t ranks) {
      return ranks > 1 ? fmt::format(" {}{}", name, ranks) : "";
    };
    // Devices of several classes may have parts of the same sequences.
    const int parts = first.part.parts, count = end - i;
    const bool whole = count % parts == 0;
    text += fmt::format(
        "{}{} x {}{}{}: {} each", i == 0 ? "" : ", ",
        whole ? fmt::format("{}", count / parts) : fmt::format("{} of {} parts", count, parts),
        first.device_class, degree("tp", std::ssize(first.ranks)), degree("cp", first.part.parts),
        first.micro_batch);
    i = end;
  }
  return text;
}

/// The rank of a stage with the least room.
const PlanCertificate::RankMemory& fullest(const PlanReport& report, const PlanStage& stage) {
  std::vector<const PlanCertificate::RankMemory*> ranks;
  for (const StageReplica& replica : stage.replicas) {
    for (const RankId rank : replica.ranks) {
      ranks.push_back(&report.certificate.memory[rank.index()]);
    }
  }
  return **std::ranges::max_element(ranks, {}, [](const PlanCertificate::RankMemory* memory) {
    const auto bytes = static_cast<double>(memory->ledger.total().value());
    // Without limits the one with the most bytes is the fullest; any rank with a limit comes before
    // it.
    return memory->limit > Bytes(0) ? bytes / static_cast<double>(memory->limit.value())
                                    : bytes * 1e-18;
  });
}

/// A text, or nothing where it is empty.
Datum unless_empty(const std::string& text) { return text.empty() ? Datum() : Datum(text); }

std::string summary_of(const Plan& plan) {
  return fmt::format("{} stage{}, {} micro-batches of {}, {} ranks, {}", plan.stages.size(),
                     plan.stages.size() == 1 ? "" : "s", plan.micro_batches,
                     plan.micro_batch_samples(), plan.ranks(), plan.schedule);
}

/// "conv2d/forward, max_pool/forward": the kinds of that basis, those that take longest first.
std::string operations_text(const RateUse& use, RateBasis basis) {
  constexpr std::size_t most_named = 4;
  std::vector<std::string> names;
  for (const RateUse::Operation& entry : use.operations) {
    if (entry.basis != basis) continue;
    if (std::find(names.begin(), names.end(), entry.operation) == names.end()) {
      names.push_back(entry.operation);
    }
  }
  const std::size_t more = names.size() > most_named ? names.size() - most_named : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

/// Tells which share of the computing time rests on measured operations, and what the rest is.
std::string rates_text(const PlanReport& report) {
  const RateUse& use = report.rates;
  const std::string& precision = report.plan.workload->precision;
  std::set<std::string> known;
  for (const Efficiency& entry : report.cluster.efficiency) {
    // Single operations have names such as conv2d/forward.
    if (entry.operation.find('/') != std::string::npos) known.insert(entry.precision);
  }
  if (!known.contains(precision)) {
    return "analytic: no operation is measured" +
           (known.empty()
                ? ""
                : fmt::format(" in {} (in {} they are)", precision, fmt::join(known, ", ")));
  }
  std::string text = fmt::format("{:.1f} % of the computing time measured",
                                 100 * use.fraction(RateBasis::measured));
  const std::pair<RateBasis, const char*> others[] = {
      {RateBasis::other_shape, "measured at another shape"}, {RateBasis::analytic, "analytic"}};
  for (const auto& [basis, what] : others) {
    const double share = use.fraction(basis);
    if (share <= 0) continue;
    text += fmt::format(", {:.1f} % {} ({})", 100 * share, what, operations_text(use, basis));
  }
  return text;
}

/// Adds the stages for people, and every replica, whose share of the batch is what mixed classes
/// divide unevenly.
void add_stages(const PlanReport& report, Document& document) {
  const Plan& plan = report.plan;
  document.line(fmt::format("{} on {}", summary_of(plan), report.cluster.name));
  Table stages{.key = {},
               .columns = {{"", "stage", Unit::none},
                           {"", "nodes", Unit::none},
                           {"", "recompute", Unit::none},
                           {"", "fullest rank", Unit::none},
                           {"", "replicas", Unit::none}},
               .audience = Audience::people};
  Table replicas{.key = "replicas",
                 .columns = {{"stage", "stage", Unit::none},
                             {"device_class", "class", Unit::none},
                             {"tensor_parallel", "tensor degree", Unit::none},
                             {"micro_batch", "samples", Unit::count},
                             {"batch_share", "share of the batch", Unit::fraction}},
                 .audience = Audience::programs};
  const auto all_samples = static_cast<double>(plan.micro_batch_samples());
  for (const StageId s : plan.stages.ids()) {
    const PlanStage& stage = plan.stages[s];
    const PlanCertificate::RankMemory& memory = fullest(report, stage);
    std::string room = rounded_byte_size(memory.ledger.total());
    if (memory.limit > Bytes(0)) room += " of " + rounded_byte_size(memory.limit);
    stages.add({s.value(), stage.nodes.size(), to_string(stage.recomputation), room,
                replicas_text(stage)});
    for (const StageReplica& replica : stage.replicas) {
      const auto rank = replica.ranks.front().index();
      replicas.add({s.value(), report.certificate.memory[rank].device_class, replica.ranks.size(),
                    replica.micro_batch,
                    static_cast<double>(replica.micro_batch) / replica.part.parts / all_samples});
    }
  }
  document.table(std::move(stages));
  document.table(std::move(replicas));
  if (!plan.warm_up.empty()) {
    document.field(
        "", "warm-up", Unit::none,
        fmt::format("{} forwards before the first backward", fmt::join(plan.warm_up, " ")));
  }
  for (const StageWire& wire : plan.wires) {
    document.field("", "wire", Unit::none,
                   fmt::format("{} between stages {} and {}", to_string(wire.format),
                               wire.from.value(), wire.to.value()));
  }
  // The best plan may leave devices out that would slow it down.
  const int devices = static_cast<int>(report.cluster.ranks.size());
  if (devices > plan.ranks()) {
    document.field("", "idle", Unit::none,
                   fmt::format("{} of {} devices", devices - plan.ranks(), devices));
  }
}

/// Adds the bytes that each rank holds at its fullest moment, by use.
void add_memory(const PlanCertificate& certificate, Document& document) {
  Table table{.key = "memory",
              .columns = {{"rank", "rank", Unit::none},
                          {"bytes", "peak", Unit::bytes},
                          {"limit_bytes", "limit", Unit::bytes}},
              .audience = Audience::programs};
  add_ledger_columns(table);
  for (std::size_t rank = 0; rank < certificate.memory.size(); ++rank) {
    const PlanCertificate::RankMemory& memory = certificate.memory[rank];
    const bool limited = memory.limit > Bytes(0);
    table.add(with_ledger(
        {rank, memory.ledger.total().value(), limited ? Datum(memory.limit.value()) : Datum()},
        memory.ledger));
  }
  document.table(std::move(table));
}

/// The bound is the largest of several constraints; the binding one is named.
void add_certificate(const PlanCertificate& certificate, Document& document) {
  const PlanBound& bound = certificate.bound;
  document.field("certificate.lower_bound_s", "lower bound", Unit::seconds, bound.seconds,
                 fmt::format("{}; {:.1f} % below", bound.binding, 100 * certificate.gap));
  document.data("certificate.gap", "step time above it", Unit::fraction, certificate.gap);
  document.data("certificate.binding", "binding constraint", Unit::none, bound.binding);
  document.table(table_of("certificate.constraints", bound.constraints,
                          {{{"name", "constraint", Unit::none}, &PlanBound::Constraint::name},
                           {{"seconds", "bound", Unit::seconds}, &PlanBound::Constraint::seconds}},
                          Audience::programs));
  document.field("certificate.limited_by", "limited by", Unit::none, certificate.limited_by);
  document.table(table_of("certificate.critical_path", certificate.critical_path,
                          {{{"position", "position", Unit::none},
                            [](const CriticalPart& part) { return part.position.value(); }},
                           {{"passes", "passes", Unit::none}, &CriticalPart::passes},
                           {{"start_s", "start", Unit::seconds}, &CriticalPart::start_s},
                           {{"end_s", "end", Unit::seconds}, &CriticalPart::end_s}},
                          Audience::programs));
}

/// Adds facts that differ between two searches and are no claims.
void add_search(const PlanReport& report, Document& document) {
  const PlanSearchResult& search = report.search;
  document.data("search.seconds", "time of the search", Unit::seconds, search.seconds);
  document.data("search.candidates", "candidates", Unit::count, search.candidates);
  document.data("search.simulated", "simulated", Unit::count, search.simulated);
  document.data("search.peak_rss_bytes", "memory of the search", Unit::bytes,
                report.peak_rss_bytes);
  document.data("search.seed", "seed", Unit::none, report.seed);
  document.data("search.objective", "objective", Unit::none, report.objective);
  document.data("search.complete", "ended by itself", Unit::none, search.complete);
  document.data("search.exhaustive", "every draft looked at", Unit::none, search.exhaustive);
  if (search.plans.size() < 2) return;
  const ReadyPlan& second = search.plans[1];
  document.field("search.runner_up_step_time_s", "runner-up", Unit::seconds,
                 second.predicted().step_time_s, summary_of(second.plan));
}

/// The three fractions add up to 1 where anything is computed.
void add_rates(const RateUse& use, Document& document) {
  for (const RateBasis basis : {RateBasis::measured, RateBasis::other_shape, RateBasis::analytic}) {
    document.data(fmt::format("rates.{}_fraction", to_string(basis)), "share of the computing time",
                  Unit::fraction, use.fraction(basis));
  }
  using Operation = RateUse::Operation;
  document.table(table_of("rates.operations", use.operations,
                          {{{"device_class", "class", Unit::none}, &Operation::device_class},
                           {{"operation", "operation", Unit::none}, &Operation::operation},
                           {{"shape", "shape", Unit::none}, &Operation::shape},
                           {{"basis", "basis", Unit::none},
                            [](const Operation& entry) { return to_string(entry.basis); }},
                           {{"seconds", "time", Unit::seconds}, &Operation::seconds},
                           {{"source", "source", Unit::none},
                            [](const Operation& entry) { return unless_empty(entry.source); }}},
                          Audience::programs));
}

std::string summary_with_recomputation(const Plan& plan) {
  const auto recomputing = std::ranges::count_if(plan.stages, [](const PlanStage& stage) {
    return stage.recomputation != Recomputation::none;
  });
  return recomputing == 0 ? summary_of(plan)
                          : fmt::format("{}, {} recompute", summary_of(plan), recomputing);
}

/// Tells where the components of a model may lie, and what that does to the objective.
void add_placements(const PlanReport& report, Document& document) {
  const std::vector<PlacedPlan>& placements = report.search.placements;
  if (placements.empty()) return;
  const PlanObjective objective = parse_plan_objective(report.objective);
  const auto value = [&](const PlacedPlan& placement) {
    return objective_value(objective, *placement.ready, report.cluster);
  };
  const std::map<PlanObjective, const char*> chosen = {
      {PlanObjective::time, "chosen: its step is the shortest"},
      {PlanObjective::cost, "chosen: its step costs least"},
      {PlanObjective::energy, "chosen: its step takes least energy"}};
  const auto why = [&](const PlacedPlan& placement) {
    if (!placement.ready) return placement.why_not;
    if (&placement == &placements.front()) return std::string(chosen.at(objective));
    return change_text(value(placement) / value(placements.front())) + " to the chosen";
  };
  const auto planned = [](auto number) {
    return [number](const PlacedPlan& placement) {
      return placement.ready ? Datum(number(*placement.ready)) : Datum();
    };
  };
  document.table(table_of(
      "placements", placements,
      {{{"placement", "placement", Unit::none}, &PlacedPlan::placement},
       {{"step_time_s", "step time", Unit::seconds},
        planned([](const ReadyPlan& ready) { return ready.predicted().step_time_s; })},
       {{"idle_fraction", "ranks idle", Unit::fraction},
        planned(std::mem_fn(&ReadyPlan::idle_fraction))},
       {{"plan", "its plan", Unit::none},
        planned([](const ReadyPlan& ready) { return summary_with_recomputation(ready.plan); })},
       {{"why", "why", Unit::none}, why}}));
}

/// A class that cannot run the workload alone is listed with the reason and adds nothing to the
/// sum; a comparison that found no plan for any class has no quotient.
void add_comparison(const PlanReport& report, Document& document) {
  if (report.alone.empty()) return;
  const auto planned = [](auto value) {
    return [value](const ClassAlone& side) { return side.plan ? Datum(value(side)) : Datum(); };
  };
  document.table(
      table_of("comparison", report.alone,
               {{{"device_class", "alone", Unit::none}, &ClassAlone::device_class},
                {{"devices", "devices", Unit::count}, &ClassAlone::devices},
                {{"step_time_s", "step time", Unit::seconds},
                 planned(std::mem_fn(&ClassAlone::step_time_s))},
                {{"throughput", "samples/s", Unit::work_per_second},
                 planned(std::mem_fn(&ClassAlone::throughput))},
                {{"why_not", "why there is no plan", Unit::none},
                 [](const ClassAlone& side) { return unless_empty(side.why_not); }},
                {{"", "plan", Unit::none, Audience::people},
                 planned([](const ClassAlone& side) { return summary_of(*side.plan); })}}));
  document.field("predicted.hsr", "HSR", Unit::ratio, report.hsr(),
                 "of the sum of the classes alone");
}

/// The best plan with one layout for all components, and how much faster the own one is.
void add_centric(const PlanReport& report, Document& document) {
  if (!report.centric) return;
  const BaselinePlan& centric = *report.centric;
  document.field("centric.why_not", "no centric plan", Unit::none, unless_empty(centric.why_not));
  if (!centric.plan) return;
  document.field("centric.step_time_s", "centric step", Unit::seconds, centric.step_time_s,
                 summary_of(*centric.plan));
  document.data("centric.throughput", "centric samples/s", Unit::work_per_second,
                centric.throughput());
  document.field("centric.speedup", "faster than centric", Unit::ratio,
                 report.throughput() / centric.throughput());
}

/// The throughput of another planner's plan is told relative to the own one.
void add_imported(const PlanReport& report, Document& document) {
  if (report.imported.empty()) return;
  const auto runs = [](auto value) {
    return [value](const ImportedPlan& rival) {
      return rival.why_not.empty() ? Datum(value(rival)) : Datum();
    };
  };
  document.table(table_of(
      "imported", report.imported,
      {{{"source", "imported", Unit::none}, &ImportedPlan::source},
       {{"step_time_s", "step time", Unit::seconds}, runs(std::mem_fn(&ImportedPlan::step_time_s))},
       {{"throughput", "samples/s", Unit::work_per_second},
        runs(std::mem_fn(&ImportedPlan::throughput))},
       {{"ratio", "of our throughput", Unit::ratio},
        runs([&](const ImportedPlan& rival) { return rival.throughput() / report.throughput(); })},
       {{"why_not", "why it cannot run here", Unit::none},
        [](const ImportedPlan& rival) { return unless_empty(rival.why_not); }},
       {{"", "plan", Unit::none, Audience::people},
        runs([](const ImportedPlan& rival) { return summary_of(rival.plan); })}}));
}

/// Adds how wrong the prediction was before and after learning, relative to the measured step, then
/// whether a re-plan pays.
void add_learned(const PlanReport& report, Document& document) {
  if (!report.learned) return;
  const LearnedRun& run = *report.learned;
  document.field("learned.run_id", "learned from", Unit::none, run.run_id);
  document.field("learned.measured_step_time_s", "measured step", Unit::seconds,
                 run.measured_step_s);
  const double before = run.predicted_step_s / run.measured_step_s;
  const double after = run.relearned_step_s / run.measured_step_s;
  document.field("learned.predicted_step_time_s", "was predicted", Unit::seconds,
                 run.predicted_step_s, change_text(before));
  document.data("learned.error_fraction", "its error", Unit::fraction, before - 1);
  document.field("learned.relearned_step_time_s", "with learned rates", Unit::seconds,
                 run.relearned_step_s, change_text(after));
  document.data("learned.relearned_error_fraction", "its error", Unit::fraction, after - 1);
  document.table(
      table_of("learned.classes", run.classes,
               {{{"device_class", "class", Unit::none}, &DeviceTime::device_class},
                {{"ranks", "ranks", Unit::count}, &DeviceTime::ranks},
                {{"measured_compute_s", "computes", Unit::seconds}, &DeviceTime::measured_s},
                {{"predicted_compute_s", "predicted", Unit::seconds}, &DeviceTime::predicted_s}}));
  // Both throughputs use the learned rates, so the gain is that of the plan alone.
  const double gain = *report.replan_gain();
  const bool pays = gain > report.replan_threshold;
  document.field("learned.replan_gain", "re-plan", Unit::fraction,
                 Datum(gain).as(change_text(1 + gain)),
                 fmt::format("throughput over the plan of the run; {}: the threshold is {:.1f} %",
                             pays ? "suggested" : "not needed", 100 * report.replan_threshold));
  document.data("learned.replan_suggested", "a re-plan pays", Unit::none, pays);
}

}  // namespace

std::optional<double> PlanReport::replan_gain() const {
  if (!learned) return std::nullopt;
  const double before =
      static_cast<double>(learned->plan.samples_per_step()) / learned->relearned_step_s;
  return throughput() / before - 1;
}

std::optional<double> PlanReport::hsr() const {
  double sum = 0;
  for (const ClassAlone& side : alone) {
    if (side.plan) sum += side.throughput();
  }
  return heterogeneous_speed_ratio(throughput(), sum);
}

Document plan_document(const PlanReport& report) {
  const PlanCertificate& c = report.certificate;
  Document document{"heteroperf-plan"};
  add_stages(report, document);
  const double throughput = report.throughput();
  const double units = throughput * static_cast<double>(report.units_per_sample);
  document.field("predicted.step_time_s", "step time", Unit::seconds, c.prediction.step_time_s);
  document.field("predicted.throughput", "throughput", Unit::work_per_second,
                 Datum(throughput)
                     .as(with_prefix(throughput, "samples/s") + ", " +
                         with_prefix(units, report.unit + "s/s")));
  document.field("predicted.ops_per_second", "operations", Unit::operations_per_second,
                 c.operations_per_s, "strict");
  document.data("predicted.samples_per_step", "samples of a step", Unit::count,
                report.plan.samples_per_step());
  document.field("predicted.cost_per_step", "cost of a step", Unit::none, report.expense.cost);
  document.field("predicted.energy_per_step_j", "energy of a step", Unit::joules,
                 report.expense.joules);
  add_memory(c, document);
  add_certificate(c, document);
  document.field("", "rates", Unit::none, rates_text(report));
  add_search(report, document);
  add_rates(report.rates, document);
  add_placements(report, document);
  add_comparison(report, document);
  add_centric(report, document);
  using Fit = ProfiledRates::ClassFit;
  if (!report.profiled.empty()) {
    document.table(table_of("profiled", report.profiled,
                            {{{"class", "profile of", Unit::none}, &Fit::device_class},
                             {{"entries", "entries", Unit::count}, &Fit::entries},
                             {{"predicted_s", "predicted", Unit::seconds}, &Fit::predicted_s},
                             {{"profiled_s", "profiled", Unit::seconds}, &Fit::profiled_s},
                             {{"error", "off with the new rates", Unit::fraction}, &Fit::error}}));
  }
  add_imported(report, document);
  add_learned(report, document);
  for (const std::string& assumption : report.cluster.assumptions) {
    document.field("", "assumed", Unit::none, assumption);
  }
  const PlanSearchResult& search = report.search;
  document.field("", "search", Unit::none,
                 fmt::format("{}, {} candidates, {} simulated{}", seconds_text(search.seconds),
                             search.candidates, search.simulated,
                             search.exhaustive ? ", every draft looked at"
                             : search.complete ? ""
                                               : ", ended by the time limit"));
  return document;
}

}  // namespace heteroperf
