#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "runners/plan/memory/stage_memory.hpp"
#include "runners/plan/ready/plan_schedule.hpp"
#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

using EdgeMicroBatch = std::pair<EdgeId, MicroBatchId>;

/// When, in the simulated step, the other ends begin to receive messages: until then their tensors
/// wait with the sender.
class FetchTimes {
 public:
  FetchTimes(const Schedule& schedule, const Timeline& timeline);
  double of_activation(EdgeMicroBatch key) const { return of(key, 0); }
  double of_gradient(EdgeMicroBatch key) const { return of(key, 1); }

 private:
  double of(EdgeMicroBatch key, std::size_t kind) const;
  std::array<std::map<EdgeMicroBatch, double>, 2> times_;
};

/// Tensors that wait for other ranks to fetch them.
class Unfetched {
 public:
  void add(std::uint64_t bytes, double fetched) {
    bytes_ += bytes;
    waiting_.push_back({bytes, fetched});
  }
  /// Tensors leave in their order, as transfers are given back.
  void retire(double now) {
    while (!waiting_.empty() && waiting_.front().fetched <= now) {
      bytes_ -= waiting_.front().bytes;
      waiting_.pop_front();
    }
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Sent {
    std::uint64_t bytes;
    double fetched;
  };
  std::deque<Sent> waiting_;
  std::uint64_t bytes_ = 0;
};

/// One segment's micro-batches on a rank.
struct PartState {
  RankRole::Part role;
  StageMemory memory;
  std::map<MicroBatchId, std::uint64_t> kept = {};
  Unfetched outputs = {}, gradients = {};  ///< on their way
};

/// Follows the memory of one rank while it runs its program, by sizes alone.
class RankMemoryTrace {
 public:
  /// Both outlive it.
  RankMemoryTrace(const Schedule& schedule, const FetchTimes& fetches)
      : schedule_(schedule), fetches_(fetches) {}

  void add_part(const PartState& part) { parts_.push_back(part); }
  /// Bytes of an edge's activations and gradients on this rank.
  IdVector<EdgeId, std::uint64_t> activation_bytes, gradient_bytes;

  /// `spans` [instruction] of the simulated step.
  void run(const std::vector<Instruction>& program, const std::vector<TimeSpan>& spans);
  /// Bytes kept between passes at their most, and all bytes at theirs; the two moments may differ.
  std::uint64_t most_kept() const { return most_kept_; }
  std::uint64_t most() const { return most_; }

 private:
  using Key = EdgeMicroBatch;

  PartState& part_of(const Instruction& i);
  bool here(SegmentId segment) const;
  void step(const Instruction& i);
  void arrive(Key key, std::map<Key, std::uint64_t>& where, std::uint64_t bytes);
  void put(Key key, std::map<Key, std::uint64_t>& where, std::uint64_t bytes);
  void take(Key key, std::map<Key, std::uint64_t>& where);
  void retire(double now);
  std::uint64_t unfetched() const;
  void forward(const Instruction& i);
  void take_gradients(const Instruction& i);
  void hand_on_gradients(const Instruction& i);
  void pass(const Instruction& i, std::uint64_t StageMemory::*most,
            std::uint64_t StageMemory::*after);
  void set_kept(PartState& part, MicroBatchId micro_batch, std::uint64_t bytes);
  void note(std::uint64_t running);

  const Schedule& schedule_;
  const FetchTimes& fetches_;
  std::vector<PartState> parts_;
  std::map<Key, std::uint64_t> activations_, gradients_;  ///< arrived, not yet used
  std::uint64_t kept_ = 0, moving_ = 0, most_kept_ = 0, most_ = 0;
};

}  // namespace heteroperf
