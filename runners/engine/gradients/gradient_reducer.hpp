#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/gradients/gradient_sum.hpp"
#include "runners/engine/parameters/parameter_store.hpp"
#include "runners/engine/parameters/rank_share.hpp"
#include "runners/engine/training.hpp"
#include "runners/plan/plan.hpp"

namespace heteroperf {

struct SumPlan;

/// Runs a step's sums in their order, each once its parameters are final: on a thread of its own as
/// soon as it may, or all of them in finish_step().
class SumQueue {
 public:
  struct Entry {
    std::unique_ptr<GradientSum> sum;
    std::size_t parameters = 1;
  };
  enum class Runner { own_thread, caller };
  /// Keeps `groups`, which the sums use, for as long as a sum may run. The allocations of the
  /// queue's thread are charged to `memory`.
  SumQueue(std::vector<std::unique_ptr<Communicator>> groups, std::vector<Entry> entries,
           Runner runner, std::optional<RankMemory> memory);
  /// Ends the thread. A thread that is inside a sum whose peers do not come is left to itself after
  /// a moment: it ends when its communicator learns that the run has failed.
  ~SumQueue();
  SumQueue(const SumQueue&) = delete;
  SumQueue& operator=(const SumQueue&) = delete;

  /// One more parameter of a sum is final.
  void parameter_final(std::size_t entry);
  /// Returns when all sums are there; then a new step begins. All parameters must be final.
  /// Rethrows the error of a sum, then and from then on.
  void finish_step();
  /// Gives all ranks the parameters that each has updated. Collective, between steps.
  void share();

  /// From the next step on the queue's thread appends its sums to `lanes`, which nobody else
  /// touches from a step's first parameter to the end of finish_step(). Null ends that.
  void trace_to(std::vector<LaneSpan>* lanes);

  /// Sums of a step, and how many of this step's are there.
  std::size_t size() const;
  std::size_t done() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

struct ReductionConfig {
  /// 0 stands for an eighth of a stage's gradients on average, 64 KiB to 4 MiB.
  std::size_t bucket_bytes = 0;
  /// On: sums run on a thread of their own beside the computation, unless the transport serves one
  /// thread alone.
  enum class Overlap { off, on } overlap = Overlap::on;
  /// The allocations of that thread are charged to it.
  std::optional<RankMemory> memory = std::nullopt;
  /// The ranks of the plan over a library of their GPUs: copies of equal degree sum through it.
  Communicator* devices = nullptr;
};

/// Sums gradients over the replicas of each stage, its copies in the other direction, and the
/// holders of a tied weight, in buckets, while the backward pass goes on.
///
/// Every replica's gradient is already weighted by its share of the global targets
/// (PassContext::loss_scale), so the sum is the mean over the global batch: Σ n·g / Σ n. Where only
/// some targets count it is the sum, of which the update makes the mean.
/// Buckets go in one order on all ranks: the last stage first, inside a stage matrices from the
/// last to the first, then the rest, tied weights at the end. Copies of equal tensor-parallel
/// degree sum in place; copies of different degrees sum each parameter by a reshard plan
/// (plan_sum). The order of every sum depends on the plan alone (on a transport whose sums do):
/// copies in the plan's order, those of a tied weight's owner first.
class GradientReducer {
 public:
  /// Collective over `world` (all ranks of the plan): makes the groups it needs.
  GradientReducer(Communicator& world, const ModelGraph& graph, const StagedGraph& staged,
                  const Plan& plan, const RankShare& share, ParameterStore& store,
                  const ReductionConfig& config);

  /// The gradient of this parameter (ParameterStore ordinal) is final for this step, as far as one
  /// part is concerned: a weight that several parts of this rank use waits for reduce() or
  /// reduce_tied(). A bucket goes when all of its parameters are final and those before it have
  /// gone.
  void ready(std::size_t ordinal);
  /// REDUCE_GRAD: all gradients of the part's stage are final, but for tied weights.
  void reduce(std::size_t part);
  /// REDUCE_TIED: those of the tied weights that the part uses too, once all parts have said so.
  void reduce_tied(std::size_t part);
  /// All gradients are final. Returns when all sums of this step are there and rethrows the error
  /// of a sum (PeerError), then and from then on.
  void wait();
  /// ZeRO-1: after the update gives every replica all of the parameters again, published.
  void share_parameters();

  /// Elements of the arena that this rank updates, ascending: with ZeRO-1 a share of each bucket,
  /// else all of the arena.
  const std::vector<ArenaRange>& owned() const { return owned_; }
  /// The elements that no other rank of the world counts or stores.
  const std::vector<ArenaRange>& counted() const { return counted_; }
  /// Squared norm over the counted elements: the sum over all ranks is that of the whole model's
  /// gradient.
  double own_square_sum() const;

  SumQueue& queue() const { return *queue_; }
  /// The reason why sums wait for wait(); empty while they run beside the computation.
  const std::string& overlap_reason() const { return overlap_reason_; }

 private:
  void note_parts(const RankShare& share, const SumPlan& sums);
  void begin_step();
  void set_final(std::size_t ordinal);

  ParameterStore& store_;
  bool sliced_;  ///< ZeRO-1
  std::vector<ArenaRange> owned_, counted_;
  std::vector<std::vector<std::size_t>> parameters_of_, tied_of_;  ///< ordinals, by part
  std::vector<std::size_t> sum_of_;                                ///< by ordinal
  std::vector<bool> shared_;  ///< by ordinal: no single part of this rank can call it final
  std::vector<int> parts_using_, missing_parts_;
  std::vector<bool> final_;
  std::string overlap_reason_;
  std::unique_ptr<SumQueue> queue_;
};

}  // namespace heteroperf
