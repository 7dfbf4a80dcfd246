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
    for (std::size_t j = 0; const SailorSeat& seat : stage.seats()) all[j++].seats.push_back(seat);
  }
  std::size_t j = 0;
  for (SailorShare share : shares_of(tables, plan)) {
    const int count = std::exchange(share.count, 1);
    for (int i = 0; i < count && j < all.size(); ++i) all[j++].share = share;
  }
  std::vector<Pipeline> kinds;
  for (const Pipeline& pipeline : all) {
    if (std::ranges::find(kinds, pipeline) == kinds.end()) kinds.push_back(pipeline);
  }
  return kinds;
}

/// Sums the profile over a stage's layers.
SailorTiming timing(const SailorTables& tables, const SailorSeat& seat, std::int64_t micro_batch,
                    const SailorLayers& layers) {
  const auto& profiles = tables.inputs().model.profiles.at(tables.device(seat.place));
  const std::vector<SailorTiming>& profile = profiles.at({micro_batch, seat.tensor});
  SailorTiming sum;
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    sum.forward_s += profile[layer].forward_s;
    sum.backward_s += profile[layer].backward_s;
  }
  return sum;
}

/// Every tensor-parallel rank moves the whole tensor over its own card, so a message takes what one
/// device's link takes, the slower way.
double message_s(const SailorTables& tables, int here, int next, int layer,
                 std::int64_t micro_batch) {
  return std::max(tables.send_s({here, 1}, {next, 1}, layer, micro_batch),
                  tables.send_s({next, 1}, {here, 1}, layer, micro_batch));
}

/// A segment per stage, each on a rank of its own. Backward is one task: Sailor's profiles do not
/// split it. Tails are micro-batches of another scale, in proportion to their work.
PipelineGraph graph_of(const SailorTables& tables, const SailorPlan& plan,
                       const Pipeline& pipeline) {
  PipelineGraph graph;
  const auto& [seats, share] = pipeline;
  graph.ranks = static_cast<int>(seats.size());
  graph.micro_batches = static_cast<int>(share.micro_batches + std::ssize(share.tails));
  for (int s = 0; s < graph.ranks; ++s) {
    const SailorLayers& layers = plan.stages[s].layers;
    const SailorTiming time = timing(tables, seats[s], share.micro_batch, layers);
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
    edge.bytes =
        message_s(tables, seats[s].place, seats[s + 1].place, layers.end - 1, share.micro_batch);
  }
  if (share.tails.empty()) return graph;
  const auto work_s = [&](std::int64_t micro_batch) {
    double sum = 0;
    for (std::size_t s = 0; s < seats.size(); ++s) {
      const SailorTiming time = timing(tables, seats[s], micro_batch, plan.stages[s].layers);
      sum += time.forward_s + time.backward_s;
    }
    return sum;
  };
  graph.micro_batch_scale.assign(share.micro_batches, 1.0);
  for (const std::int64_t tail : share.tails) {
    graph.micro_batch_scale.push_back(work_s(tail) / work_s(share.micro_batch));
  }
  return graph;
}

}  // namespace

// A pipeline takes from its first task to its last in a schedule whose messages both sides wait
// for.
double simulated_sailor_step_s(const SailorTables& tables, const SailorPlan& plan) {
  check_sailor_entries(tables, plan);
  const SailorReport parts = sailor_report(tables, plan);
  double pipeline_s = 0;
  for (const Pipeline& pipeline : pipelines_of(plan, tables)) {
    ScheduleRequest request;
    request.graph = graph_of(tables, plan, pipeline);
    SimulationOptions options;
    options.model = NetworkModel::rendezvous;
    // Edges already hold seconds.
    options.network.bandwidth = 1;
    const Timeline timeline = simulate(lower(find_generator("1f1b").make(request)), options);
    for (const auto& spans : timeline.spans) {
      for (const TimeSpan& span : spans) pipeline_s = std::max(pipeline_s, span.end);
    }
  }
  return pipeline_s + parts.reduction_s + parts.update_s;
}

}  // namespace heteroperf
