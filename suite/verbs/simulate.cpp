#include <fmt/format.h>

#include <chrono>
#include <fstream>

#include "metrics/error.hpp"
#include "runners/schedule/formats/schedule_json.hpp"
#include "runners/schedule/formats/trace_json.hpp"
#include "runners/schedule/placement.hpp"
#include "suite/verbs/schedule_flags.hpp"
#include "suite/verbs/schedule_report.hpp"
#include "suite/verbs/verbs.hpp"

namespace heteroperf {
namespace {

class SimulateVerb : public Verb {
 public:
  const char* name() const override { return "simulate"; }
  const char* summary() const override {
    return "the time a schedule takes on a virtual clock, and where it goes";
  }
  std::vector<std::string> examples() const override {
    return {
        "simulate schedule.json --costs-file costs.json",
        "simulate schedule.json --model links --network network.json --trace trace.json --json"};
  }

  void declare(CLI::App& command) override {
    command.add_option("schedule", path_, "as `schedule --format json` writes it")->required();
    costs_.declare(command);
    network_.declare(command);
    command.add_option("--trace", trace_, "write a trace for Perfetto or chrome://tracing");
  }

  ExitCode run(const GlobalOptions& options) override {
    Schedule schedule = read_schedule_file(path_);
    if (costs_.given()) set_costs(schedule.graph, costs_.costs(schedule.graph.ranks));
    const SimulationOptions simulation = network_.options();
    const auto start = std::chrono::steady_clock::now();
    const ScheduleResult result = evaluate_schedule(std::move(schedule), simulation, {});
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    if (!trace_.empty()) write_trace(result);
    fmt::print("{}", options.json ? simulation_json_text(result, wall.count())
                                  : simulation_table(result, wall.count()));
    return ExitCode::ok;
  }

 private:
  void write_trace(const ScheduleResult& result) const {
    std::ofstream file(trace_, std::ios::binary);
    file << trace_text(result.lowered, result.timeline) << std::flush;
    if (!file) throw UserError("cannot write " + trace_, "", "Give --trace a writable path.");
  }

  std::string path_, trace_;
  CostFlags costs_;
  NetworkFlags network_;
};

}  // namespace

std::unique_ptr<Verb> make_simulate_verb() { return std::make_unique<SimulateVerb>(); }

}  // namespace heteroperf
