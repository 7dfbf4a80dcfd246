#include "runners/engine/pipeline/pipeline_edges.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/engine/pipeline/step_clock.hpp"

namespace heteroperf {
namespace {

Crossing crossing_of(Op op) {
  return op == Op::send_act || op == Op::recv_act ? Crossing::activation : Crossing::gradient;
}

}  // namespace

/// One direction of an edge, by micro-batch.
struct PipelineEdges::Channel {
  struct Inbox {
    std::unique_ptr<BoundaryEnd::Arrival> arrival;
    Tensors tensors;
    double made_s = 0;
  };
  struct Outbox {
    Tensors tensors;
    double made_s = 0;
  };

  Channel(std::size_t micro_batches, double travel)
      : inboxes(micro_batches), outboxes(micro_batches), travel_s(travel) {}

  std::unique_ptr<BoundaryEnd> end;  ///< null inside a rank
  std::vector<Inbox> inboxes;
  std::vector<Outbox> outboxes;
  double travel_s;  ///< modelled
};

/// An edge of the schedule.
struct PipelineEdges::State {
  const StageEdge* edge = nullptr;
  int from = 0, to = 0;  ///< segments
  bool starts_here = false, ends_here = false;
  std::array<std::unique_ptr<Channel>, 2> channels;  ///< by Crossing; null: nothing crosses

  bool inside() const { return starts_here && ends_here; }
};

/// Ends of the edges for batches of one size.
struct PipelineEdges::Evaluation {
  std::int64_t batch = 0;
  std::vector<std::unique_ptr<BoundaryEnd>> ends;  ///< by edge of the staged graph; null: inside
  std::vector<Tensors> inside;
};

PipelineEdges::PipelineEdges(const TrainingSpec& spec, const Deployment& deployment,
                             Communicator& world, at::ScalarType type, at::Device device)
    : spec_(spec),
      deployment_(deployment),
      world_(world),
      device_(device),
      shapes_(spec.graph, type),
      edges_(deployment.schedule.graph.edges.size()) {
  const auto here = [&](int segment) {
    return std::any_of(deployment.share.parts.begin(), deployment.share.parts.end(),
                       [&](const RankShare::Part& p) { return p.role.segment == segment; });
  };
  for (std::size_t e = 0; e < edges_.size(); ++e) {
    const Edge& edge = deployment.schedule.graph.edges[e];
    auto state = std::make_unique<State>();
    state->edge = &deployment.edge(static_cast<int>(e));
    state->from = edge.from;
    state->to = edge.to;
    state->starts_here = here(edge.from);
    state->ends_here = here(edge.to);
    if (!state->starts_here && !state->ends_here) continue;
    edges_[e] = std::move(state);
    for (const Crossing what : {Crossing::activation, Crossing::gradient}) {
      edges_[e]->channels[static_cast<std::size_t>(what)] = make_channel(static_cast<int>(e), what);
    }
  }
}

PipelineEdges::~PipelineEdges() = default;

std::unique_ptr<PipelineEdges::Channel> PipelineEdges::make_channel(int schedule_edge,
                                                                    Crossing what) {
  const std::vector<NodeId>& crossing = nodes(schedule_edge, what);
  if (crossing.empty()) return nullptr;
  const State& state = *edges_[at_index(schedule_edge)];
  const bool forward = what == Crossing::activation;
  double travel_s = 0;
  if (spec_.pacing) {
    const StageTimes& times = spec_.pacing->times;
    travel_s =
        (forward ? times.activation_s
                 : times.gradient_s)[at_index(schedule_edge) % deployment_.staged.edges.size()];
  }
  auto result = std::make_unique<Channel>(
      static_cast<std::size_t>(deployment_.schedule.graph.micro_batches), travel_s);
  if (state.inside()) return result;
  const auto stages = static_cast<int>(spec_.plan().stages.size());
  const int from = state.from % stages, to = state.to % stages, direction = state.from / stages;
  auto sources = replicas_of(spec_.plan(), from, direction);
  auto targets = replicas_of(spec_.plan(), to, direction);
  if (!forward) std::swap(sources, targets);
  result->end = std::make_unique<BoundaryEnd>(
      world_, sources, targets,
      shapes_.of(crossing, spec_.plan().micro_batch_samples(), sources, targets),
      spec_.plan().wire(from, to), forward ? activation_tag : gradient_tag, device_);
  return result;
}

PipelineEdges::OfSegment PipelineEdges::of(int segment) const {
  OfSegment result;
  for (std::size_t e = 0; e < edges_.size(); ++e) {
    if (!edges_[e]) continue;
    if (edges_[e]->from == segment) result.out.push_back(static_cast<int>(e));
    if (edges_[e]->to == segment) result.in.push_back(static_cast<int>(e));
  }
  return result;
}

const std::vector<NodeId>& PipelineEdges::nodes(int edge, Crossing what) const {
  const StageEdge& own = *edges_[at_index(edge)]->edge;
  return what == Crossing::activation ? own.nodes : own.with_gradient;
}

PipelineEdges::Channel& PipelineEdges::channel(int edge, Crossing what) {
  return *edges_[at_index(edge)]->channels[static_cast<std::size_t>(what)];
}

void PipelineEdges::send(const Instruction& i) {
  Channel& own = channel(i.edge, crossing_of(i.op));
  Channel::Outbox& box = own.outboxes[at_index(i.micro_batch)];
  own.end->send(std::exchange(box.tensors, {}),
                {now_ns() + spec_.clock_offset_ns, box.made_s + own.travel_s});
}

void PipelineEdges::receive(const Instruction& i) {
  Channel& own = channel(i.edge, crossing_of(i.op));
  own.inboxes[at_index(i.micro_batch)].arrival = own.end->receive();
}

PipelineEdges::Arrived PipelineEdges::take(int edge, Crossing what, int micro_batch) {
  Channel::Inbox box = std::exchange(channel(edge, what).inboxes[at_index(micro_batch)], {});
  if (!box.arrival) return {std::move(box.tensors), {0, box.made_s}, false};
  Arrived result{box.arrival->wait(), {}, true};
  result.times = box.arrival->times();
  return result;
}

void PipelineEdges::hand_on(int edge, Crossing what, int micro_batch, Tensors tensors,
                            double made_s) {
  Channel& own = channel(edge, what);
  if (own.end) {
    own.outboxes[at_index(micro_batch)] = {std::move(tensors), made_s};
  } else {
    own.inboxes[at_index(micro_batch)] = {nullptr, std::move(tensors), made_s};
  }
}

template <class Body>
void PipelineEdges::for_ends(const Body& body) {
  for (const std::unique_ptr<State>& edge : edges_) {
    if (!edge) continue;
    for (const std::unique_ptr<Channel>& channel : edge->channels) {
      if (channel && channel->end) body(*channel->end);
    }
  }
}

void PipelineEdges::retire() {
  for_ends([](BoundaryEnd& end) { end.retire(); });
}

void PipelineEdges::drain() {
  for_ends([](BoundaryEnd& end) { end.drain(); });
}

PipelineEdges::Evaluation& PipelineEdges::evaluation(std::int64_t batch) {
  for (const std::unique_ptr<Evaluation>& known : evaluations_) {
    if (known->batch == batch) return *known;
  }
  Evaluation& own = *evaluations_.emplace_back(std::make_unique<Evaluation>());
  own.batch = batch;
  own.ends.resize(deployment_.staged.edges.size());
  own.inside.resize(own.ends.size());
  for (std::size_t e = 0; e < own.ends.size(); ++e) {
    if (!edges_[e] || edges_[e]->inside()) continue;
    const StageEdge& edge = *edges_[e]->edge;
    const BoundaryShapes::Replicas from = replicas_of(spec_.plan(), edge.from, 0);
    const BoundaryShapes::Replicas to = replicas_of(spec_.plan(), edge.to, 0);
    own.ends[e] = std::make_unique<BoundaryEnd>(
        world_, from, to, shapes_.of(edge.nodes, batch, from, to),
        spec_.plan().wire(edge.from, edge.to), evaluation_tag, device_);
  }
  return own;
}

Tensors PipelineEdges::take_evaluated(int edge, std::int64_t batch) {
  Evaluation& own = evaluation(batch);
  const std::unique_ptr<BoundaryEnd>& end = own.ends[at_index(edge)];
  return end ? end->receive()->wait() : std::exchange(own.inside[at_index(edge)], {});
}

void PipelineEdges::hand_on_evaluated(int edge, std::int64_t batch, Tensors tensors) {
  Evaluation& own = evaluation(batch);
  if (own.ends[at_index(edge)]) {
    own.ends[at_index(edge)]->send(tensors, {});
  } else {
    own.inside[at_index(edge)] = std::move(tensors);
  }
}

void PipelineEdges::drain_evaluation() {
  for (const std::unique_ptr<Evaluation>& own : evaluations_) {
    for (const std::unique_ptr<BoundaryEnd>& end : own->ends) {
      if (end) end->drain();
    }
  }
}

}  // namespace heteroperf
