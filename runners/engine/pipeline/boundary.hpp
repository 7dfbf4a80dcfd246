#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/comm/reshard/rank_program.hpp"
#include "runners/engine/operators/operator.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/staged_graph.hpp"

namespace heteroperf {

/// When a message was sent, on the clock that all ranks share and on a paced device's timeline.
struct SendTimes {
  std::int64_t sent_ns = 0;
  double modelled_s = 0;
};

/// One end of one edge between stages on this rank, in one direction: tensors of a micro-batch
/// spread over the replicas of one stage become spread over those of the other, as a reshard plan
/// says.
///
/// Every message is preceded by its SendTimes. Sends do not block: their tensors stay until they
/// have gone.
class BoundaryEnd {
 public:
  /// One tensor of the edge.
  struct Lane {
    std::vector<std::int64_t> sample;  ///< extents of one sample, whole
    at::ScalarType type = at::kFloat;
    /// Of a tensor whose last dimension tensor-parallel ranks have in parts: the widths of the
    /// parts on either side, all together as many as the whole; empty: whole on every rank.
    std::vector<std::int64_t> from_widths = {}, to_widths = {};
  };
  struct Shape {
    std::vector<Lane> lanes;
    std::int64_t batch = 0;  ///< samples of a micro-batch over all replicas
  };
  /// `from`, `to`: replicas of the two stages, of one direction of the pipeline; replicas whose
  /// share of the batch begins at or beyond `shape.batch` take no part. What arrives is put on
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
    /// Blocks until everything is here. Once.
    virtual Tensors wait() = 0;
    /// Of the message sent last; after wait().
    virtual SendTimes times() const = 0;
  };
  std::unique_ptr<Arrival> receive();

  /// Gives back the memory of what has gone.
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

/// Tags: a boundary uses `tag` and `tag + 1`.
constexpr int activation_tag = 0, gradient_tag = 2, evaluation_tag = 4;

}  // namespace heteroperf
