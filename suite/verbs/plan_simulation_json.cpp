#include <nlohmann/json.hpp>

#include "suite/verbs/memory_ledger_json.hpp"
#include "suite/verbs/plan_simulation.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

Json rank_json(const PlanSimulation& simulation, const PlanRankTimes& times, std::size_t rank) {
  const MemoryLedger& memory = simulation.memory[rank];
  return {{"rank", rank},
          {"position", simulation.roles[rank].position},
          {"compute_s", times.compute_s},
          {"communication_exposed_s", times.communication_exposed_s},
          {"idle_s", times.idle_s},
          {"peak_bytes", memory.total().value()},
          {"ledger", memory_ledger_json(memory)}};
}

Json path_json(const PlanSimulation& simulation) {
  Json path = Json::array();
  for (const PathStep& step : simulation.prediction->pipeline.critical_path) {
    const auto position = static_cast<std::size_t>(step.rank);
    const auto index = static_cast<std::size_t>(step.index);
    path.push_back({{"position", step.rank},
                    {"instruction", to_text(simulation.schedule.programs[position][index])},
                    {"start", step.span.start},
                    {"end", step.span.end}});
  }
  return path;
}

}  // namespace

std::string plan_simulation_json_text(const PlanSimulation& simulation, double wall_s) {
  const Prediction& p = *simulation.prediction;
  const std::vector<PlanRankTimes> times = plan_rank_times(simulation);
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    ranks.push_back(rank_json(simulation, times[rank], rank));
  }
  Json json{{"name", simulation.plan.schedule},
            {"model", "latency"},
            {"cluster", simulation.cluster->name},
            {"step_time_s", p.step_time_s},
            {"throughput", p.throughput},
            {"bubble_rate", not_computing(simulation, times)},
            {"bubble_rate_makespan", p.pipeline.bubble_rate_makespan},
            {"bubble_rate_span", p.pipeline.bubble_rate_span},
            {"per_rank", ranks},
            {"critical_path", path_json(simulation)},
            {"instructions", instruction_count(simulation.schedule)},
            {"wall_s", wall_s}};
  if (simulation.measured) {
    const MeasuredPlan& measured = *simulation.measured;
    json["measured"] = {{"run_id", measured.run_id},
                        {"step_time_s", measured.step_time_s},
                        {"error_fraction", measured.step_time_s / p.step_time_s - 1}};
    if (measured.samples_per_s) json["measured"]["throughput"] = *measured.samples_per_s;
    if (measured.bubble_rate) json["measured"]["bubble_rate"] = *measured.bubble_rate;
  }
  return json.dump(2) + "\n";
}

}  // namespace heteroperf
