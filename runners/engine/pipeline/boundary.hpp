#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/comm/reshard/rank_program.hpp"
#include "runners/engine/operators/operator.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/tensor/tensor_parallel.hpp"

namespace heteroperf {

/// When a message was sent, on the clock that all ranks share and on a paced device's timeline.
struct SendTimes {
  std::int64_t sent_ns = 0;
  double modelled_s = 0;
};

/// One end of one edge between stages on this rank, in one direction: a reshard plan leads the
/// tensors of a micro-batch from the replicas of one stage to those of the other.
///
/// Every message is preceded by its SendTimes. Sends do not block: their tensors stay until they
/// have gone.
class BoundaryEnd {
 public:
  /// One tensor of the edge.
  struct Lane {
    std::vector<std::int64_t> sample;  ///< extents of one sample, whole
    at::ScalarType type = at::kFloat;
    /// Where tensor-parallel ranks have the last dimension in parts: the widths of the parts on
    /// either side, all together as many as the whole. Empty: it is whole on every rank.
    std::vector<std::int64_t> from_widths = {}, to_widths = {};
    /// The replicas with the parts of a sequence on either side have parts of it, not all of it.
    bool from_parts = false, to_parts = false;
  };
  struct Shape {
    std::vector<Lane> lanes;
    std::int64_t batch = 0;  ///< samples of a micro-batch over all replicas
  };
  /// `from` and `to` are the replicas of the two stages, in one direction of the pipeline. Replicas
  /// whose share of the batch begins at or beyond `shape.batch` take no part. Arrivals are put on
  /// `device`.
  BoundaryEnd(Communicator& world, const std::vector<const StageReplica*>& from,
              const std::vector<const StageReplica*>& to, const Shape& shape, WireFormat wire,
              int tag, at::Device device = at::kCPU);
  ~BoundaryEnd();

  /// Starts to send this rank's tiles. `tensors` in the order of the shape.
  void send(const Tensors& tensors, const SendTimes& times);

  /// A receive under way.
  class Arrival {
   public:
    virtual ~Arrival() = default;
    /// Blocks until everything is here and returns it, with the times of the message that was sent
    /// last. Once.
    virtual std::pair<Tensors, SendTimes> wait() = 0;
  };
  std::unique_ptr<Arrival> receive();
  /// Both at once, for stages on the same ranks: what this rank has already stays where it is.
  std::unique_ptr<Arrival> pass(const Tensors& tensors, const SendTimes& times);

  /// Gives back the memory of the messages that have gone.
  void retire();
  /// Waits until all sends have gone.
  void drain();

 private:
  struct Outgoing;
  struct LaneEnd;
  class Receiving;

  Communicator& world_;
  int tag_;
  at::Device device_;
  std::vector<std::unique_ptr<LaneEnd>> lanes_;  ///< by tensor
  std::deque<std::unique_ptr<Outgoing>> outgoing_;
};

/// Finds the tensors that cross a border between two stages and the parts in which either side
/// holds them.
class BoundaryShapes {
 public:
  using Replicas = std::vector<const StageReplica*>;
  /// `graph` is the full model's and outlives this object; `type` is that of the operators'
  /// outputs.
  BoundaryShapes(const ModelGraph& graph, at::ScalarType type) : graph_(graph), type_(type) {}

  /// The shape of an edge that the outputs of `nodes` cross, from the replicas of one stage to
  /// those of another. Throws UserError for a cut layer's output that the two sides, or replicas of
  /// one side, hold in parts that do not fit.
  BoundaryEnd::Shape of(const std::vector<NodeId>& nodes, std::int64_t batch, const Replicas& from,
                        const Replicas& to);

 private:
  const TensorShard& shard_of(int degree, int index, const SequencePart& part = {});
  bool has_parts(NodeId node, const Replicas& replicas);
  std::vector<std::int64_t> widths_of(NodeId node, const Replicas& replicas);
  void check_columns(NodeId node, const BoundaryEnd::Lane& lane, const Replicas& from,
                     const Replicas& to);

  const ModelGraph& graph_;
  at::ScalarType type_;
  std::deque<TensorShard> shards_;  ///< those that were needed so far
};

/// Message tags: a boundary uses `tag` and `tag + 1`.
constexpr int activation_tag = 0, gradient_tag = 2, evaluation_tag = 4;

}  // namespace heteroperf
