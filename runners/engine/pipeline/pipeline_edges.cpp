// The edges of the schedule on this rank. An edge has two *channels*, one for activations and one
// for their gradients. A channel inside the rank only passes tensors on: the box of the sender is
// that of the receiver. Where the stages on both sides have unlike replicas on the ranks of one
// position, a BoundaryEnd passes them between these ranks: all follow one program, so each starts
// to send and to receive at the pass that makes the tensors, whether it runs that pass or not. A
// channel to another position has a BoundaryEnd; its box keeps tensors from the computation that
// made them to the SEND, or a receive from the RECV to the computation that needs it. Evaluation
// runs without a schedule, on ends of its own, made for each size of batch.
#include "runners/engine/pipeline/pipeline_edges.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// One direction of an edge. Each micro-batch has a box: what is to be sent or taken here, or the
/// receive under way.
struct PipelineEdges::Channel {
  struct Box {
    std::unique_ptr<BoundaryEnd::Arrival> arrival;
    Tensors tensors;
    double made_s = 0;
  };

  BoundaryEnd* end = nullptr;  ///< null inside a rank whose replicas on both sides are alike
  IdVector<MicroBatchId, Box> boxes;
  double travel_s = 0;     ///< modelled
  bool has_items = false;  ///< each micro-batch has another number of rows
};

/// An edge of the schedule.
struct PipelineEdges::State {
  SegmentId from, to;
  bool inside = false;                   ///< starts and ends on this rank
  bool near = false;                     ///< starts and ends on this rank's position
  std::array<Channel, 2> channels = {};  ///< by Crossing; without boxes where nothing crosses
};

PipelineEdges::PipelineEdges(const TrainingSpec& spec, const RankShare& share, Communicator& world,
                             at::ScalarType type, at::Device device)
    : spec_(spec),
      world_(world),
      device_(device),
      type_(type),
      layouts_(spec.graph, *spec.ready),
      edges_(spec.ready->schedule.graph.edges.size()) {
  const auto here = [&](SegmentId segment) { return share.role.has(segment); };
  for (const EdgeId e : edges_.ids()) {
    const PipelineGraph& graph = spec.ready->schedule.graph;
    const Edge& edge = graph.edges[e];
    const bool starts = here(edge.from), ends = here(edge.to);
    if (!starts && !ends) continue;
    const bool near = graph.segments[edge.from].rank == graph.segments[edge.to].rank;
    edges_[e] = std::make_unique<State>(State{edge.from, edge.to, starts && ends, near});
    for (const Crossing what : {Crossing::activation, Crossing::gradient}) open_channel(e, what);
  }
}

PipelineEdges::~PipelineEdges() = default;

void PipelineEdges::open_channel(EdgeId edge, Crossing what) {
  if (nodes(edge, what).empty()) return;
  const bool forward = what == Crossing::activation;
  Channel& channel = channel_of(edge, what);
  channel.boxes.resize(spec_.ready->schedule.graph.micro_batches);
  channel.has_items = layouts_.has_items(edge, what);
  if (spec_.pacing) {
    const StageTimes& times = spec_.pacing->times;
    channel.travel_s =
        (forward ? times.activation_s
                 : times.gradient_s)[edge.index() % spec_.ready->staged.edges.size()];
  }
  if (stays_on_rank(edge)) return;
  const auto tensors = layouts_.of(edge, what, spec_.plan().micro_batch_samples());
  channel.end = make_end(edge, tensors, forward ? activation_tag : gradient_tag);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].leaves) at_borders_.push_back({channel.end, i, *tensors[i].leaves});
  }
}

// Before a micro-batch with items is sent or received its extents are laid out.
void PipelineEdges::lay_out(EdgeId edge, Crossing what, MicroBatchId micro_batch) {
  Channel& channel = channel_of(edge, what);
  if (!channel.has_items) return;
  const std::int64_t batch = spec_.plan().micro_batch_samples();
  const auto first = static_cast<std::uint64_t>(micro_batch.value() * batch);
  std::vector<std::int64_t> first_item;
  for (std::int64_t i = 0; i <= batch; ++i) {
    const std::uint64_t before = samples_->first_image(first + static_cast<std::uint64_t>(i));
    first_item.push_back(static_cast<std::int64_t>(before - samples_->first_image(first)));
  }
  channel.end->lay_out(layouts_.of(edge, what, batch, first_item));
}

// The end here of an edge that leads to another rank.
BoundaryEnd* PipelineEdges::make_end(EdgeId edge, const std::vector<EdgeTensor>& tensors, int tag) {
  const auto stages = static_cast<int>(spec_.plan().stages.size());
  const State& state = *edges_[edge];
  const StageId from(state.from.value() % stages), to(state.to.value() % stages);
  ends_.push_back(std::make_unique<BoundaryEnd>(world_, tensors, type_, spec_.plan().wire(from, to),
                                                tag, device_));
  return ends_.back().get();
}

bool PipelineEdges::stays_on_rank(EdgeId edge) const {
  const State& state = *edges_[edge];
  if (!state.inside) return false;
  const auto replicas = [&](SegmentId segment) {
    std::vector<std::tuple<std::vector<RankId>, std::int64_t, SequencePart>> result;
    for (const StageReplica* replica : layouts_.replicas_of(segment)) {
      result.emplace_back(replica->ranks, replica->micro_batch, replica->part);
    }
    return result;
  };
  return replicas(state.from) == replicas(state.to);
}

std::vector<std::uint64_t> PipelineEdges::border_bytes(std::size_t components) const {
  std::vector<std::uint64_t> bytes(components, 0);
  for (const AtBorder& tensor : at_borders_) {
    bytes[tensor.component] += tensor.end->sent_bytes(tensor.tensor);
  }
  return bytes;
}

PipelineEdges::OfSegment PipelineEdges::of(SegmentId segment) const {
  OfSegment result;
  for (const EdgeId e : edges_.ids()) {
    if (!edges_[e]) continue;
    if (edges_[e]->from == segment) result.out.push_back(e);
    if (edges_[e]->to == segment) result.in.push_back(e);
  }
  return result;
}

PipelineEdges::Channel& PipelineEdges::channel_of(EdgeId edge, Crossing what) {
  return edges_[edge]->channels[static_cast<std::size_t>(what)];
}

// The moment of sending is that of rank 0's clock; a paced receiver also learns the modelled
// arrival.
void PipelineEdges::exchange(const Instruction& i) {
  const bool forward = i.op == Op::send_act || i.op == Op::recv_act;
  const Crossing what = forward ? Crossing::activation : Crossing::gradient;
  Channel& channel = channel_of(i.edge, what);
  Channel::Box& box = channel.boxes[i.micro_batch];
  lay_out(i.edge, what, i.micro_batch);
  if (i.op == Op::recv_act || i.op == Op::recv_grad) {
    box.arrival = channel.end->receive();
    return;
  }
  channel.end->send(std::exchange(box.tensors, {}),
                    {now_ns() + spec_.clock_offset_ns, box.made_s + channel.travel_s});
}

// Without a receive under way the tensors came from a stage of this rank.
PipelineEdges::Arrived PipelineEdges::take(EdgeId edge, Crossing what, MicroBatchId micro_batch) {
  Channel::Box box = std::exchange(channel_of(edge, what).boxes[micro_batch], {});
  if (!box.arrival) return {std::move(box.tensors), {0, box.made_s}, false};
  auto [tensors, times] = box.arrival->wait();
  return {std::move(tensors), times, true};
}

void PipelineEdges::hand_on(EdgeId edge, Crossing what, MicroBatchId micro_batch, Tensors tensors,
                            double made_s) {
  Channel& channel = channel_of(edge, what);
  Channel::Box& box = channel.boxes[micro_batch];
  box = {nullptr, std::move(tensors), made_s};
  if (!edges_[edge]->near || channel.end == nullptr) return;
  lay_out(edge, what, micro_batch);
  const SendTimes times{now_ns() + spec_.clock_offset_ns, made_s};
  if (edges_[edge]->inside) {
    box.arrival = channel.end->pass(box.tensors, times);
  } else {
    channel.end->send(box.tensors, times);
  }
  box.tensors.clear();
}

void PipelineEdges::receive_near(SegmentId made_by, Crossing what, MicroBatchId micro_batch) {
  for (const EdgeId e : edges_.ids()) {
    if (!edges_[e]) continue;
    const State& state = *edges_[e];
    if ((what == Crossing::activation ? state.from : state.to) != made_by) continue;
    Channel& channel = channel_of(e, what);
    if (channel.end == nullptr) continue;
    lay_out(e, what, micro_batch);
    channel.boxes[micro_batch].arrival = channel.end->receive();
  }
}

// The last batch of a validation split may be smaller, which needs ends of another size. Evaluation
// goes in the first direction, whose edges come first.
PipelineEdges::Evaluation& PipelineEdges::evaluation(EdgeId edge, const EvaluatedBatch& batch) {
  const auto [known, fresh] = evaluations_.try_emplace({edge, batch.samples});
  Evaluation& result = known->second;
  const bool is_new = fresh && !stays_on_rank(edge);
  const bool is_another = result.end != nullptr && layouts_.has_items(edge, Crossing::activation);
  if (!is_new && !is_another) return result;
  const std::vector<EdgeTensor> tensors =
      layouts_.of(edge, Crossing::activation, batch.samples, batch.first_item);
  if (is_new) {
    result.end = make_end(edge, tensors, evaluation_tag);
  } else {
    result.end->lay_out(tensors);
  }
  return result;
}

Tensors PipelineEdges::take_evaluated(EdgeId edge, const EvaluatedBatch& batch) {
  Evaluation& pass = evaluation(edge, batch);
  if (pass.end == nullptr) return std::exchange(pass.inside, {});
  // A rank may take no part in the stage before.
  auto arrival = pass.arrival ? std::move(pass.arrival) : pass.end->receive();
  return arrival->wait().first;
}

void PipelineEdges::hand_on_evaluated(EdgeId edge, const EvaluatedBatch& batch, Tensors tensors) {
  Evaluation& pass = evaluation(edge, batch);
  if (pass.end == nullptr) {
    pass.inside = std::move(tensors);
  } else if (edges_[edge]->inside) {
    pass.arrival = pass.end->pass(tensors, {});
  } else {
    pass.end->send(tensors, {});
  }
}

}  // namespace heteroperf
