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
  std::vector<SailorSeat> seats;  ///< [stage]
  SailorShare share;
  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

/// Lists every kind of pipeline once: thousands of replicas are of a few kinds.
std::vector<Pipeline> pipelines_of(const SailorPlan& plan, const SailorTables& tables) {
  const int width = plan.stages.front().width();
  std::vector<Pipeline> all(width);
  for (const SailorStage& stage : plan.stages) {
    if (stage.width() != width) {
      throw UserError(fmt::format("stages of {} and {} replicas", width, stage.width()),
                      "a simulation follows pipelines with one replica of every stage");
    }
    std::size_t j = 0;
    for (const auto& [count, seat] : stage.replicas) {
      for (int i = 0; i < count; ++i) all[j++].seats.push_back(seat);
    }
  }
  std::size_t j = 0;
  for (SailorShare share : shares_of(tables, plan)) {
    const int count = std::exchange(share.count, 1);
    for (int i = 0; i < count && j < all.size(); ++i) all[j++].share = share;
  }
  std::vector<Pipeline> kinds;
  for (Pipeline& pipeline : all) {
    const bool known = std::ranges::find(kinds, pipeline) != kinds.end();
    if (!known) kinds.push_back(std::move(pipeline));
  }
  return kinds;
}

/// The simulation of one kind of pipeline.
class Simulation {
 public:
  Simulation(const SailorInputs& inputs, const SailorTables& tables, const SailorPlan& plan,
             const Pipeline& pipeline)
      : inputs_(inputs), tables_(tables), plan_(plan), pipeline_(pipeline) {}

  /// Seconds from the first task to the last of a schedule whose messages both sides wait for.
  double pipeline_s() const {
    ScheduleRequest request;
    request.graph = graph();
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

 private:
  /// A segment per stage, each on a rank of its own. Backward is one task: Sailor's profiles do not
  /// split it. Tails are micro-batches of another scale, in proportion to their work.
  PipelineGraph graph() const {
    PipelineGraph graph;
    const SailorShare& share = pipeline_.share;
    graph.ranks = static_cast<int>(plan_.stages.size());
    graph.micro_batches = static_cast<int>(share.micro_batches + std::ssize(share.tails));
    for (int s = 0; s < graph.ranks; ++s) {
      const SailorTiming time = timing(s, share.micro_batch);
      Segment& segment = graph.segments.emplace_back();
      segment.name = std::to_string(s);
      segment.rank = s;
      segment.forward = time.forward_s;
      segment.input_gradient = time.backward_s;
      segment.weight_gradient = 0;
      if (s + 1 == graph.ranks) break;
      // Under a bandwidth of one byte per second a message's bytes are its seconds.
      Edge& edge = graph.edges.emplace_back();
      edge.from = SegmentId(s);
      edge.to = SegmentId(s + 1);
      edge.bytes = message_s(s);
    }
    if (!share.tails.empty()) {
      graph.micro_batch_scale.assign(share.micro_batches, 1.0);
      const double whole_s = work_s(share.micro_batch);
      for (const std::int64_t tail : share.tails) {
        graph.micro_batch_scale.push_back(work_s(tail) / whole_s);
      }
    }
    return graph;
  }

  /// Sums the profile over a stage's layers.
  SailorTiming timing(std::size_t s, std::int64_t micro_batch) const {
    const auto [place, tensor] = pipeline_.seats[s];
    const auto& profile =
        inputs_.model.profiles.at(tables_.device(place)).at({micro_batch, tensor});
    SailorTiming sum;
    const auto [begin, end] = plan_.stages[s].layers;
    for (int layer = begin; layer < end; ++layer) {
      sum.forward_s += profile[layer].forward_s;
      sum.backward_s += profile[layer].backward_s;
    }
    return sum;
  }

  /// Every tensor-parallel rank moves the whole tensor over its own card, so a message takes what
  /// one device's link takes, the slower way.
  double message_s(std::size_t s) const {
    const SailorSeat from{pipeline_.seats[s].place, 1}, to{pipeline_.seats[s + 1].place, 1};
    const int layer = plan_.stages[s].layers.end - 1;
    return std::max(tables_.send_s(from, to, layer, pipeline_.share.micro_batch),
                    tables_.send_s(to, from, layer, pipeline_.share.micro_batch));
  }

  /// All stages' work of one micro-batch, which tails are measured by.
  double work_s(std::int64_t micro_batch) const {
    double sum = 0;
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const SailorTiming stage = timing(s, micro_batch);
      sum += stage.forward_s + stage.backward_s;
    }
    return sum;
  }

  const SailorInputs& inputs_;
  const SailorTables& tables_;
  const SailorPlan& plan_;
  const Pipeline& pipeline_;
};

}  // namespace

double simulated_sailor_step_s(const SailorInputs& inputs, const SailorTables& tables,
                               const SailorPlan& plan) {
  check_sailor_entries(tables, plan);
  const SailorReport parts = sailor_report(tables, plan);
  double pipeline_s = 0;
  for (const Pipeline& pipeline : pipelines_of(plan, tables)) {
    pipeline_s = std::max(pipeline_s, Simulation(inputs, tables, plan, pipeline).pipeline_s());
  }
  return pipeline_s + parts.reduction_s + parts.update_s;
}

}  // namespace heteroperf
