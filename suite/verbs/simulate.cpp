// The verb `simulate`: tells how long a schedule or a plan takes on the virtual clock. The file
// says which of the two it is. A schedule has costs in any unit of time; a plan brings its workload
// and cluster, from which times in seconds follow, and refuses costs. The plan of a finished run is
// shown with what that run measured beside the prediction. A trace of the simulated step can be
// written for a viewer.
#include <fmt/format.h>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "results/text/document.hpp"
#include "results/text/number_text.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/schedule/formats/schedule_json.hpp"
#include "runners/schedule/formats/trace_json.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "suite/planning/measured_plan.hpp"
#include "suite/planning/plan_simulation.hpp"
#include "suite/program/verb.hpp"
#include "suite/training/step_trace.hpp"
#include "suite/verbs/output_file.hpp"
#include "suite/verbs/schedule_flags.hpp"
#include "suite/verbs/schedule_report.hpp"

namespace heteroperf {
namespace {

/// Times are seconds of one step, memory is that of the fullest moment.
Table rank_table(const ReadyPlan& simulation, const std::vector<PlanRankTimes>& times) {
  Table table{.key = "per_rank",
              .columns = {{"rank", "rank", Unit::none},
                          {"position", "position", Unit::none},
                          {"compute_s", "compute", Unit::seconds},
                          {"communication_exposed_s", "exposed", Unit::seconds},
                          {"idle_s", "idle", Unit::seconds},
                          {"peak_bytes", "peak", Unit::bytes}}};
  add_ledger_columns(table);
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    const MemoryLedger& memory = simulation.memory[rank];
    table.add(with_ledger(
        {rank, simulation.roles[rank].position.value(), times[rank].compute_s,
         times[rank].communication_exposed_s, times[rank].idle_s, memory.total().value()},
        memory));
  }
  return table;
}

/// The critical path names instructions of positions, since replicas share them.
Document plan_simulation_document(const ReadyPlan& simulation,
                                  const std::optional<MeasuredPlan>& beside, double wall_s) {
  const Prediction& predicted = *simulation.prediction;
  const std::vector<PlanRankTimes> times = plan_rank_times(simulation);
  const auto samples = [](double rate) { return Datum(rate).as(with_prefix(rate, "samples/s")); };
  Document document{"heteroperf-simulation"};
  document.field("name", "schedule", Unit::none, simulation.plan.schedule,
                 fmt::format("{} stages, {} ranks", simulation.plan.stages.size(), times.size()));
  document.data("model", "model of the network", Unit::none, "latency");
  document.field("cluster", "cluster", Unit::none, simulation.cluster->name);
  document.field("step_time_s", "step time", Unit::seconds, predicted.step_time_s);
  document.field("throughput", "throughput", Unit::none, samples(predicted.throughput));
  document.field("bubble_rate", "not computing", Unit::fraction, not_computing(simulation, times),
                 "of all ranks' time");
  add_pipeline(document, predicted.pipeline, simulation.schedule, "position",
               rank_table(simulation, times), ", slowest replicas");
  document.field("wall_s", "simulated in", Unit::seconds, wall_s);
  if (!beside) return document;
  const MeasuredPlan& measured = *beside;
  const double error = measured.step_time_s / predicted.step_time_s - 1;
  document.field("measured.run_id", "measured in", Unit::none, measured.run_id);
  document.field("measured.step_time_s", "step time", Unit::seconds, measured.step_time_s);
  document.field("measured.error_fraction", "to the predicted", Unit::fraction,
                 Datum(error).as(change_text(1 + error)));
  if (measured.samples_per_s) {
    document.field("measured.throughput", "throughput", Unit::none,
                   samples(*measured.samples_per_s));
  }
  document.field("measured.bubble_rate", "not computing", Unit::fraction, measured.bubble_rate);
  return document;
}

class SimulateVerb : public Verb {
 public:
  SimulateVerb()
      : Verb(
            {"simulate",
             "the time a schedule or a plan takes on a virtual clock, and where it goes",
             {"simulate schedule.json --costs-file costs.json", "simulate results/latest/plan.json",
              "simulate schedule.json --model links --network network.json --trace trace.json "
              "--json"}}) {}

  void declare(CLI::App& command) override {
    add_argument(command, "file", plan_.path,
                 "a schedule as `schedule --format json` writes it, or a plan.json");
    const std::pair<const char*, std::string&> of_plans[] = {{"--workload", plan_.workload},
                                                             {"--size", plan_.size},
                                                             {"--model-name", plan_.model},
                                                             {"--precision", plan_.precision},
                                                             {"--cluster", plan_.cluster}};
    for (const auto& [flag, value] : of_plans) {
      command.add_option(flag, value, "of a plan, where it does not say itself");
    }
    command.get_option("--cluster")
        ->description(
            "of a plan, where it does not say itself; of a run's plan.json the one it ran on");
    costs_.declare(command);
    network_.declare(command);
    command.add_option("--trace", trace_, "write a trace for Perfetto or chrome://tracing");
  }

  ExitCode run(const GlobalOptions& options) override {
    const OutputFile trace(trace_, "--trace");
    return is_plan_file(plan_.path) ? run_plan(trace, options) : run_schedule(trace, options);
  }

 private:
  /// Times are in seconds; the run beside the plan is shown with them where there is one.
  ExitCode run_plan(const OutputFile& trace, const GlobalOptions& options) const {
    if (costs_.given()) {
      throw UserError("costs are given for a plan", "its workload and cluster say them",
                      "Leave them out, or simulate a schedule.");
    }
    // The time of the simulation itself is part of the answer, as `wall_s`.
    const Stopwatch stopwatch;
    PlanSimulationRequest request = plan_;
    // A plan without a cluster can be timed with what its run measured of the machine.
    request.machine = machine_beside(plan_.path);
    Plan plan = read_plan_file(plan_.path);
    const Cluster cluster = simulated_cluster(plan, request);
    // A run of other devices is told before what the plan itself misses on these.
    const auto measured = measured_beside(plan_.path, cluster);
    const ReadyPlan simulation = simulate_plan(std::move(plan), request, cluster);
    if (trace.given()) {
      const std::string run_id = measured ? measured->run_id : "";
      trace.save(plan_trace_text(simulation, trace_origin(TraceKind::simulated, run_id)));
    }
    print(plan_simulation_document(simulation, measured, stopwatch.elapsed_s()), options);
    return ExitCode::ok;
  }

  /// Times have the unit of the schedule's costs, which the flags can replace.
  ExitCode run_schedule(const OutputFile& trace, const GlobalOptions& options) const {
    Schedule schedule = read_schedule_file(plan_.path);
    if (costs_.given()) set_costs(schedule.graph, costs_.costs(schedule.graph.ranks));
    const SimulationOptions simulation = network_.options();
    const Stopwatch stopwatch;
    const ScheduleResult result = evaluate_schedule(std::move(schedule), simulation, {});
    if (trace.given()) {
      trace.save(
          trace_text(result.lowered, result.timeline, trace_origin(TraceKind::simulated, "")));
    }
    print(simulation_document(result, stopwatch.elapsed_s()), options);
    return ExitCode::ok;
  }

  PlanSimulationRequest plan_;
  std::string trace_;
  CostFlags costs_;
  NetworkFlags network_;
};

}  // namespace

std::unique_ptr<Verb> make_simulate_verb() { return std::make_unique<SimulateVerb>(); }

}  // namespace heteroperf
