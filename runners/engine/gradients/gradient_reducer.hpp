#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/parameters/parameter_store.hpp"
#include "runners/engine/parameters/rank_share.hpp"
#include "runners/engine/training.hpp"
#include "runners/plan/plan.hpp"

namespace heteroperf {

struct ReductionConfig {
  /// 0: an eighth of a stage's gradients on average, 64 KiB to 4 MiB.
  std::size_t bucket_bytes = 0;
  /// Whether sums run on a thread of their own beside the computation (a transport that only one
  /// thread may use says no).
  enum class Overlap { off, on } overlap = Overlap::on;
  /// What that thread allocates is charged here.
  std::optional<RankMemory> memory = std::nullopt;
  /// The ranks of the plan over a library of their GPUs: copies of equal degree sum through it.
  Communicator* devices = nullptr;
};

/// Sums gradients over the replicas of each stage, its copies in the other direction, and the
/// holders of a tied weight, in buckets, while the backward pass goes on.
///
/// Every replica's gradient is already weighted by its share of the global targets
/// (PassContext::loss_scale), so the sum is the mean over the global batch: Σ n·g / Σ n.
/// Buckets go in one order on all ranks: the last stage first, inside a stage matrices from the
/// last to the first, then the rest, tied weights at the end. Copies of equal tensor-parallel
/// degree sum in place; copies of different degrees sum each parameter by a reshard plan
/// (plan_sum). The order of every sum depends on the plan alone (on a transport whose sums do):
/// copies in the plan's order, those of a tied weight's owner first.
class GradientReducer {
 public:
  /// Collective over `world` (all ranks of the plan): makes the groups it needs.
  GradientReducer(Communicator& world, const ModelGraph& graph, const StagedGraph& staged,
                  const Plan& plan, const std::vector<RankRole>& roles, const RankShare& share,
                  ParameterStore& store, const ReductionConfig& config);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// The gradient of this parameter (ParameterStore ordinal) is final for this step, as far as one
  /// part is concerned: a weight that several parts of this rank use waits for reduce() or
  /// reduce_tied(). A bucket goes when all of its parameters are final and those before it have
  /// gone.
  void ready(std::size_t ordinal);
  /// REDUCE_GRAD: all gradients of the part's stage are final, but for tied weights.
  void reduce(std::size_t part);
  /// REDUCE_TIED: those of the tied weights that the part uses too, once all parts have said so.
  void reduce_tied(std::size_t part);
  /// All gradients are final; returns when all sums of this step are there. Throws what a sum has
  /// thrown (PeerError), then and from then on.
  void wait();

  /// Elements of the arena this rank updates, ascending (ZeRO-1: a share of each bucket; else all
  /// of the arena), and after the update gives every replica all of the parameters again,
  /// published.
  using Range = ArenaRange;
  std::vector<Range> owned() const;
  /// Of these, the elements that no other rank of the world counts or stores.
  const std::vector<Range>& counted() const;
  void share_parameters();

  /// Squared norm over the counted elements: the sum over all ranks is that of the whole model's
  /// gradient.
  double own_square_sum() const;

  /// Seconds of the last step: spent in sums, and of these spent in wait().
  double busy_s() const;
  double exposed_s() const;

  /// From the next step on the sums that run beside the computation are appended to `lanes`, which
  /// nobody else touches until wait() returns; null: they are not.
  void trace_to(std::vector<LaneSpan>* lanes);

  /// Why sums wait for wait(); empty while they run beside the computation.
  const std::string& overlap_reason() const;
  /// Sums of a step on this rank, and how many of this step's are there.
  std::size_t sums() const;
  std::size_t sums_done() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace heteroperf
