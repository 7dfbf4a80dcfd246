// The time of Sailor's plans by our simulator. Each kind of pipeline becomes a pipeline graph with
// the profile's times, the schedule 1F1B is made for it and played with messages that hold both
// their sides until they have passed, as NCCL's sends and receives in the compute stream do.
// Nothing is fitted.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/plan/rivals/sailor/sailor_score.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/lower/lowering.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {
namespace {

/// One replica of every stage, and its share of a step.
struct Pipeline {
  std::vector<SailorReplicas> replicas;  ///< [stage]; count is 1
  SailorShare share;
  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

/// Lists every kind of pipeline once.
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
  for (SailorShare share : shares_of(tables, plan)) {
    const int count = std::exchange(share.count, 1);
    for (int i = 0; i < count && j < all.size(); ++i) all[j++].share = share;
  }
  // Only distinct pipelines are simulated: thousands of replicas are of a few kinds.
  std::vector<Pipeline> kinds;
  for (Pipeline& pipeline : all) {
    const bool known = std::find(kinds.begin(), kinds.end(), pipeline) != kinds.end();
    if (!known) kinds.push_back(std::move(pipeline));
  }
  return kinds;
}

/// The simulation of one plan; asked for one kind of pipeline after another.
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

// Sums the profile over the stage's layers.
SailorTiming Simulation::timing(const SailorReplicas& replica, std::int64_t micro_batch,
                                const SailorStage& stage) const {
  const std::string& device = tables_.device(replica.place);
  const auto& layers = inputs_.model.profiles.at(device).at({micro_batch, replica.tensor});
  SailorTiming sum;
  for (int layer = stage.begin; layer < stage.end; ++layer) {
    const SailorTiming& profiled = layers[static_cast<std::size_t>(layer)];
    sum.forward_s += profiled.forward_s;
    sum.backward_s += profiled.backward_s;
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

// All stages' work of one micro-batch, which tails are measured by.
double Simulation::work_s(const Pipeline& pipeline, std::int64_t micro_batch) const {
  double sum = 0;
  for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
    const SailorTiming stage = timing(pipeline.replicas[s], micro_batch, plan_.stages[s]);
    sum += stage.forward_s + stage.backward_s;
  }
  return sum;
}

// A segment per stage, each on a rank of its own. Backward is one task: Sailor's profiles do not
// split it. Tails are micro-batches of another scale, in proportion to their work.
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
    const double whole_s = work_s(pipeline, share.micro_batch);
    for (const std::int64_t tail : share.tails) {
      graph.micro_batch_scale.push_back(work_s(pipeline, tail) / whole_s);
    }
  }
  return graph;
}

/// Seconds from the first task to the last of a schedule whose messages both sides wait for.
double Simulation::pipeline_s(const Pipeline& pipeline) const {
  ScheduleRequest request;
  request.graph = graph(pipeline);
  const Schedule schedule = lower(find_generator("1f1b").make(request));
  SimulationOptions options;
  options.model = NetworkModel::rendezvous;
  // Edges already hold seconds.
  options.network.bandwidth = 1;
  const Timeline timeline = simulate(schedule, options);
  double end = 0;
  for (const auto& spans : timeline.spans) {
    for (const TimeSpan& span : spans) end = std::max(end, span.end);
  }
  return end;
}

}  // namespace

double simulated_sailor_step_s(const SailorInputs& inputs, const SailorTables& tables,
                               const SailorPlan& plan) {
  check_sailor_entries(tables, plan);
  const SailorReport parts = sailor_report(tables, plan);
  const Simulation simulation(inputs, tables, plan);
  double pipeline_s = 0;
  for (const Pipeline& pipeline : pipelines_of(plan, tables)) {
    pipeline_s = std::max(pipeline_s, simulation.pipeline_s(pipeline));
  }
  return pipeline_s + parts.reduction_s + parts.update_s;
}

}  // namespace heteroperf
