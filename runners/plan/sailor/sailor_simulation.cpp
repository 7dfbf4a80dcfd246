#include "runners/plan/sailor/sailor_simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/plan/sailor/sailor_score.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/lower/lowering.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {
namespace {

/// Weights, gradients, two states of Adam, and two copies that sums and mixed use take: 6 × 4.
constexpr double state_bytes_per_parameter = 24;
constexpr double bytes_per_value = 4;

/// One replica of every stage, and what it takes of a step.
struct Pipeline {
  std::vector<SailorReplicas> replicas;  ///< [stage]; count is 1
  SailorShare share;
  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

std::vector<SailorShare> shares_of(const SailorPlan& plan, const SailorTables& tables) {
  if (!plan.shares.empty()) return plan.shares;
  const std::int64_t together = plan.micro_batch * plan.stages.front().width();
  return {{plan.stages.front().width(),
           plan.micro_batch,
           (tables.global_batch() + together - 1) / together,
           {}}};
}

/// Every kind once.
std::vector<Pipeline> pipelines_of(const SailorPlan& plan, const SailorTables& tables) {
  const int width = plan.stages.front().width();
  std::vector<Pipeline> all(static_cast<std::size_t>(width));
  for (const SailorStage& stage : plan.stages) {
    if (stage.width() != width) {
      throw UserError(fmt::format("stages of {} and {} replicas", width, stage.width()),
                      "a simulation follows pipelines with one replica of every stage");
    }
    std::size_t j = 0;
    for (const SailorReplicas& group : stage.replicas) {
      for (int i = 0; i < group.count; ++i) {
        all[j++].replicas.push_back({1, group.place, group.tensor});
      }
    }
  }
  std::size_t j = 0;
  for (SailorShare share : shares_of(plan, tables)) {
    const int count = std::exchange(share.count, 1);
    for (int i = 0; i < count && j < all.size(); ++i) all[j++].share = share;
  }
  std::vector<Pipeline> kinds;
  for (Pipeline& one : all) {
    if (std::find(kinds.begin(), kinds.end(), one) == kinds.end()) kinds.push_back(std::move(one));
  }
  return kinds;
}

class Simulation {
 public:
  Simulation(const SailorInputs& inputs, const SailorTables& tables, const SailorPlan& plan)
      : inputs_(inputs), tables_(tables), plan_(plan) {}

  double pipeline_s(const Pipeline& pipeline) const;

 private:
  PipelineGraph graph(const Pipeline& pipeline) const;
  SailorTiming timing(const SailorReplicas& replica, std::int64_t micro_batch,
                      const SailorStage& stage) const;
  double message_s(const Pipeline& pipeline, std::size_t stage) const;
  double work_s(const Pipeline& pipeline, std::int64_t micro_batch) const;

  const SailorInputs& inputs_;
  const SailorTables& tables_;
  const SailorPlan& plan_;
};

SailorTiming Simulation::timing(const SailorReplicas& replica, std::int64_t micro_batch,
                                const SailorStage& stage) const {
  const std::string& device = tables_.device(replica.place);
  const auto& layers = inputs_.model.profiles.at(device).at({micro_batch, replica.tensor});
  SailorTiming sum;
  for (int layer = stage.begin; layer < stage.end; ++layer) {
    const SailorTiming& one = layers[static_cast<std::size_t>(layer)];
    sum.forward_s += one.forward_s;
    sum.backward_s += one.backward_s;
  }
  return sum;
}

/// Every tensor-parallel rank moves the whole tensor over its own card, so a message takes what one
/// device's link takes, the slower way.
double Simulation::message_s(const Pipeline& pipeline, std::size_t s) const {
  const int from = pipeline.replicas[s].place, to = pipeline.replicas[s + 1].place;
  const int layer = plan_.stages[s].end - 1;
  return std::max(tables_.send_s(from, 1, to, 1, layer, pipeline.share.micro_batch),
                  tables_.send_s(to, 1, from, 1, layer, pipeline.share.micro_batch));
}

double Simulation::work_s(const Pipeline& pipeline, std::int64_t micro_batch) const {
  double sum = 0;
  for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
    const SailorTiming one = timing(pipeline.replicas[s], micro_batch, plan_.stages[s]);
    sum += one.forward_s + one.backward_s;
  }
  return sum;
}

PipelineGraph Simulation::graph(const Pipeline& pipeline) const {
  PipelineGraph graph;
  const int stages = static_cast<int>(plan_.stages.size());
  const SailorShare& share = pipeline.share;
  graph.ranks = stages;
  graph.micro_batches =
      static_cast<int>(share.micro_batches) + static_cast<int>(share.tails.size());
  for (int s = 0; s < stages; ++s) {
    const auto at = static_cast<std::size_t>(s);
    const SailorTiming time = timing(pipeline.replicas[at], share.micro_batch, plan_.stages[at]);
    Segment& segment = graph.segments.emplace_back();
    segment.name = std::to_string(s);
    segment.rank = s;
    segment.forward = time.forward_s;
    segment.input_gradient = time.backward_s;
    segment.weight_gradient = 0;
    // Under a bandwidth of one byte per second a message's bytes are its seconds.
    if (s + 1 < stages) {
      Edge& edge = graph.edges.emplace_back();
      edge.from = s;
      edge.to = s + 1;
      edge.bytes = message_s(pipeline, at);
    }
  }
  if (!share.tails.empty()) {
    graph.micro_batch_scale.assign(static_cast<std::size_t>(share.micro_batches), 1.0);
    const double own = work_s(pipeline, share.micro_batch);
    for (const std::int64_t tail : share.tails) {
      graph.micro_batch_scale.push_back(work_s(pipeline, tail) / own);
    }
  }
  return graph;
}

/// The whole of a schedule whose messages both sides wait for.
double Simulation::pipeline_s(const Pipeline& pipeline) const {
  ScheduleRequest request;
  request.graph = graph(pipeline);
  const Schedule schedule = lower(find_generator("1f1b").make(request));
  SimulationOptions options;
  options.model = NetworkModel::rendezvous;
  options.network.bandwidth = 1;
  const Timeline timeline = simulate(schedule, options);
  double end = 0;
  for (const auto& spans : timeline.spans) {
    for (const TimeSpan& span : spans) end = std::max(end, span.end);
  }
  return end;
}

/// Of a device of a replica: bytes of states, bytes of activations in flight.
struct DeviceMemory {
  double states = 0, activations = 0;
  double bytes(const SailorCalibration& calibration) const {
    return states + calibration.activation_factor * activations + calibration.runtime_bytes;
  }
};

/// Micro-batches in flight in a stage: as many as stages from it to the end, no more than there
/// are.
DeviceMemory held(const SailorInputs& inputs, const SailorPlan& plan, const Pipeline& pipeline,
                  std::size_t s) {
  const SailorStage& stage = plan.stages[s];
  const auto degree = inputs.model.layers.find(pipeline.replicas[s].tensor);
  if (degree == inputs.model.layers.end()) {
    throw UserError(fmt::format("{} is not described for tensor-parallel degree {}",
                                inputs.model.name, pipeline.replicas[s].tensor));
  }
  double parameters = 0, kept = 0;
  for (int layer = stage.begin; layer < stage.end; ++layer) {
    parameters += degree->second[static_cast<std::size_t>(layer)].parameters;
    kept += degree->second[static_cast<std::size_t>(layer)].kept;
  }
  const auto in_flight = std::min<std::int64_t>(pipeline.share.micro_batches,
                                                static_cast<std::int64_t>(plan.stages.size() - s));
  return {state_bytes_per_parameter * parameters,
          bytes_per_value * kept * static_cast<double>(pipeline.share.micro_batch * in_flight)};
}

/// Of a plan's fullest device, by the given calibration.
DeviceMemory fullest(const SailorInputs& inputs, const SailorTables& tables, const SailorPlan& plan,
                     const SailorCalibration& calibration) {
  DeviceMemory most;
  for (const Pipeline& pipeline : pipelines_of(plan, tables)) {
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const DeviceMemory one = held(inputs, plan, pipeline, s);
      if (one.bytes(calibration) > most.bytes(calibration)) most = one;
    }
  }
  return most;
}

/// Straight line through (activations, measured − states): slope and intercept.
void fit_memory(const std::vector<std::pair<double, double>>& points,
                SailorCalibration& calibration) {
  if (points.empty()) return;
  const double count = static_cast<double>(points.size());
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0;
  for (const auto& [x, y] : points) {
    mean_x += x / count;
    mean_y += y / count;
  }
  for (const auto& [x, y] : points) {
    xx += (x - mean_x) * (x - mean_x);
    xy += (x - mean_x) * (y - mean_y);
  }
  if (xx > 1e-6 * mean_x * mean_x) calibration.activation_factor = xy / xx;
  calibration.runtime_bytes = mean_y - calibration.activation_factor * mean_x;
}

}  // namespace

SailorPlan plan_of(const SailorRun& run, const SailorTables& tables) {
  SailorPlan plan = run.plan;
  const std::int64_t batch = run.global_batch > 0 ? run.global_batch : tables.global_batch();
  const int width = plan.stages.front().width();
  const std::int64_t together = plan.micro_batch * width;
  plan.shares = {{width, plan.micro_batch, (batch + together - 1) / together, {}}};
  return plan;
}

SailorPrediction simulate_sailor_plan(const SailorInputs& inputs, const SailorTables& tables,
                                      const SailorPlan& plan,
                                      const SailorCalibration& calibration) {
  check_sailor_entries(tables, plan);
  const SailorReport parts = sailor_report(tables, plan);
  SailorPrediction result;
  result.update_s = parts.update_s;
  result.reduction_s = calibration.reduction_factor * parts.reduction_s;
  result.memory_bytes.assign(plan.stages.size(), 0);
  const Simulation simulation(inputs, tables, plan);
  for (const Pipeline& pipeline : pipelines_of(plan, tables)) {
    result.pipeline_s = std::max(result.pipeline_s, simulation.pipeline_s(pipeline));
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      result.memory_bytes[s] =
          std::max(result.memory_bytes[s], held(inputs, plan, pipeline, s).bytes(calibration));
    }
  }
  result.step_time_s = result.pipeline_s + result.reduction_s + result.update_s;
  result.peak_memory_bytes =
      *std::max_element(result.memory_bytes.begin(), result.memory_bytes.end());
  return result;
}

SailorCalibration calibrate_sailor(const SailorInputs& inputs, const SailorTables& tables,
                                   const std::vector<SailorRun>& runs) {
  SailorCalibration calibration;
  std::vector<std::pair<double, double>> memory;
  double measured = 0, modelled = 0;
  for (const SailorRun& run : runs) {
    const SailorPlan plan = plan_of(run, tables);
    const double sum = sailor_report(tables, plan).reduction_s;
    if (run.reduction_s && sum > 0) {
      measured += *run.reduction_s * sum;
      modelled += sum * sum;
    }
    if (!run.peak_memory) continue;
    const DeviceMemory most = fullest(inputs, tables, plan, calibration);
    memory.emplace_back(most.activations,
                        static_cast<double>(run.peak_memory->value()) - most.states);
  }
  if (modelled > 0) calibration.reduction_factor = measured / modelled;
  fit_memory(memory, calibration);
  return calibration;
}

}  // namespace heteroperf
