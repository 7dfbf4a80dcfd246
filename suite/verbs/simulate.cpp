// The verb `simulate`: tells how long a schedule or a plan takes on the virtual clock. The file
// says which of the two it is. A schedule has costs in any unit of time; a plan brings its workload
// and cluster, from which times in seconds follow, and refuses costs. The plan of a finished run is
// shown with what that run measured beside the prediction. A trace of the simulated step can be
// written for a viewer.
#include <fmt/format.h>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/schedule/formats/schedule_json.hpp"
#include "runners/schedule/formats/trace_json.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "suite/planning/plan_simulation.hpp"
#include "suite/program/verb.hpp"
#include "suite/training/step_trace.hpp"
#include "suite/verbs/output_file.hpp"
#include "suite/verbs/schedule_flags.hpp"
#include "suite/verbs/schedule_report.hpp"

namespace heteroperf {
namespace {

class SimulateVerb : public Verb {
 public:
  const char* name() const override { return "simulate"; }
  const char* summary() const override {
    return "the time a schedule or a plan takes on a virtual clock, and where it goes";
  }
  std::vector<std::string> examples() const override {
    return {
        "simulate schedule.json --costs-file costs.json", "simulate results/latest/plan.json",
        "simulate schedule.json --model links --network network.json --trace trace.json --json"};
  }

  void declare(CLI::App& command) override {
    command
        .add_option("file", plan_.path,
                    "a schedule as `schedule --format json` writes it, or a plan.json")
        ->required();
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
    request.measured = PlanSimulationRequest::Measured::beside;
    const PlanSimulation simulation = simulate_plan(request);
    if (trace.given()) {
      const std::string run_id = simulation.measured ? simulation.measured->run_id : "";
      trace.save(plan_trace_text(simulation, trace_origin(TraceKind::simulated, run_id)));
    }
    fmt::print("{}", options.json ? plan_simulation_json_text(simulation, stopwatch.elapsed_s())
                                  : plan_simulation_table(simulation, stopwatch.elapsed_s()));
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
    fmt::print("{}", options.json ? simulation_json_text(result, stopwatch.elapsed_s())
                                  : simulation_table(result, stopwatch.elapsed_s()));
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
