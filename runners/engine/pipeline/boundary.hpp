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
#include "runners/plan/ready/edge_layouts.hpp"

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
  /// `tensors` have this type. Arrivals are put on `device`.
  BoundaryEnd(Communicator& world, const std::vector<EdgeTensor>& tensors, at::ScalarType type,
              WireFormat wire, int tag, at::Device device = at::kCPU);
  ~BoundaryEnd();

  /// The same tensors have other extents from now on. Receives under way keep theirs.
  void lay_out(const std::vector<EdgeTensor>& tensors);

  /// Starts to send this rank's tiles. `tensors` in the order of the edge's.
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
  /// The bytes of a tensor that this rank has sent so far, without headers.
  std::uint64_t sent_bytes(std::size_t tensor) const;

 private:
  struct Outgoing;
  struct LaneEnd;
  class Receiving;
  using Lanes = std::vector<std::unique_ptr<const LaneEnd>>;  ///< by tensor

  Communicator& world_;
  at::ScalarType type_;
  WireFormat wire_;
  int tag_;
  at::Device device_;
  std::shared_ptr<const Lanes> lanes_;
  std::vector<std::uint64_t> sent_bytes_;  ///< by tensor
  std::deque<std::unique_ptr<Outgoing>> outgoing_;
};

/// Message tags: a boundary uses `tag` and `tag + 1`.
constexpr int activation_tag = 0, gradient_tag = 2, evaluation_tag = 4;

}  // namespace heteroperf
