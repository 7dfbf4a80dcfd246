#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runners/engine/parameters/rank_share.hpp"
#include "runners/engine/pipeline/boundary.hpp"
#include "runners/engine/training.hpp"
#include "workloads/data/step_samples.hpp"

namespace heteroperf {

/// The edges of a schedule that start or end on one rank, and the tensors on their way over them:
/// one box per micro-batch, and the messages between ranks.
class PipelineEdges {
 public:
  /// All references outlive the edges. `type`: of what operators make; arrivals are put on
  /// `device`.
  PipelineEdges(const TrainingSpec& spec, const RankShare& share, Communicator& world,
                at::ScalarType type, at::Device device);
  ~PipelineEdges();

  /// Edges of the schedule that start (`out`) or end (`in`) at a segment of this rank.
  struct OfSegment {
    std::vector<EdgeId> in, out;
  };
  OfSegment of(SegmentId segment) const;
  /// The nodes whose outputs, or whose gradients, cross.
  const std::vector<NodeId>& nodes(EdgeId edge, Crossing what) const {
    return layouts_.nodes(edge, what);
  }

  /// The samples of the step that begins, which outlive it.
  void begin_step(const StepSamples& samples) { samples_ = &samples; }
  /// Posts the receives of what a stage of another rank on this one's position hands to stages
  /// here: within a position there are no SEND and RECV.
  void receive_near(SegmentId made_by, Crossing what, MicroBatchId micro_batch);

  /// SEND starts to send the tensors that were handed on, RECV posts the receive.
  void exchange(const Instruction& i);

  /// Tensors that have arrived, in the order of nodes().
  struct Arrived {
    Tensors tensors;
    SendTimes times;
    bool from_other_rank = false;
  };
  /// Blocks until it is here. Once per micro-batch.
  Arrived take(EdgeId edge, Crossing what, MicroBatchId micro_batch);
  /// Made at `made_s` of the modelled timeline: kept until it is sent, or taken on this rank; sent
  /// at once to other ranks of the position.
  void hand_on(EdgeId edge, Crossing what, MicroBatchId micro_batch, Tensors tensors,
               double made_s);

  /// Gives back the memory of the messages that have gone.
  void retire() {
    for (const std::unique_ptr<BoundaryEnd>& end : ends_) end->retire();
  }
  /// Waits until all sends have gone.
  void drain() {
    for (const std::unique_ptr<BoundaryEnd>& end : ends_) end->drain();
  }

  /// By component, the bytes that this rank has sent so far from it to others, in training.
  /// `components`: the number of them.
  std::vector<std::uint64_t> border_bytes(std::size_t components) const;

  /// The samples of one pass in evaluation, and where they have any number of items those before
  /// each, and behind them all.
  struct EvaluatedBatch {
    std::int64_t samples = 0;
    std::vector<std::int64_t> first_item;
  };
  /// The same without a schedule.
  Tensors take_evaluated(EdgeId edge, const EvaluatedBatch& batch);
  void hand_on_evaluated(EdgeId edge, const EvaluatedBatch& batch, Tensors tensors);

 private:
  struct Channel;
  struct State;
  /// A tensor that leaves a component.
  struct AtBorder {
    const BoundaryEnd* end = nullptr;
    std::size_t tensor = 0, component = 0;
  };
  /// An edge in evaluation, for batches of one size.
  struct Evaluation {
    BoundaryEnd* end = nullptr;  ///< null where tensors stay on this rank
    Tensors inside;
    std::unique_ptr<BoundaryEnd::Arrival> arrival;  ///< from a stage on the same ranks
  };
  Channel& channel_of(EdgeId edge, Crossing what);
  /// Both stages of the edge are here, with alike replicas.
  bool stays_on_rank(EdgeId edge) const;
  void open_channel(EdgeId edge, Crossing what);
  void lay_out(EdgeId edge, Crossing what, MicroBatchId micro_batch);
  BoundaryEnd* make_end(EdgeId edge, const std::vector<EdgeTensor>& tensors, int tag);
  Evaluation& evaluation(EdgeId edge, const EvaluatedBatch& batch);

  const TrainingSpec& spec_;
  Communicator& world_;
  at::Device device_;
  at::ScalarType type_;
  EdgeLayouts layouts_;
  const StepSamples* samples_ = nullptr;
  IdVector<EdgeId, std::unique_ptr<State>> edges_;  ///< null: not here
  std::vector<std::unique_ptr<BoundaryEnd>> ends_;  ///< the ends of all channels and evaluations
  std::vector<AtBorder> at_borders_;
  std::map<std::pair<EdgeId, std::int64_t>, Evaluation> evaluations_;  ///< by size of batch
};

}  // namespace heteroperf
