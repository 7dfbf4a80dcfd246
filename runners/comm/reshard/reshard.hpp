#pragma once

#include <cstddef>
#include <list>
#include <memory>

#include "runners/comm/communicator.hpp"
#include "runners/comm/reshard/rank_program.hpp"

namespace heteroperf {

/// Carries out one plan on one rank, any number of times, with staging memory that is kept.
/// Collective: all ranks that the plan's layouts name run it, on a group whose rank numbers are
/// the plan's; other ranks may run it too, without effect.
class Resharder {
 public:
  Resharder(std::shared_ptr<const ReshardPlan> plan, RankId rank);

  /// `source` holds this rank's tiles of plan.from, `result` becomes the tiles of plan.to (Layout
  /// says in which order); they do not overlap. `tag` serves this call alone. Throws what the
  /// transport's waits throw.
  void run(Communicator& group, ConstBuffer source, MutableBuffer result, int tag = 0);

  const ReshardPlan& plan() const { return *plan_; }

 private:
  void run_stage(Communicator& group, const RankProgram::Stage& stage,
                 const RankProgram::Memories& memories, int tag);

  std::shared_ptr<const ReshardPlan> plan_;
  RankId rank_, highest_rank_;
  RankProgram program_;
  std::unique_ptr<std::byte[]> staging_, arena_;
};

/// The prepared reshards of one rank, found again by equal layouts and configuration, which
/// are compared in full. It keeps the most recently used ones. Every rank
/// plans for itself: nothing is exchanged.
///
/// Nothing in the suite uses this yet: it is here for models of several components, whose layouts
/// change from step to step and come again.
class ReshardCache {
 public:
  explicit ReshardCache(RankId rank, std::size_t capacity = 32);

  /// Plans as plan_reshard() does or, where the holders of a tile of `from` have summands, as
  /// plan_sum(), unless that has been planned before.
  std::shared_ptr<Resharder> find(const Layout& from, const Layout& to, const ReshardConfig& config,
                                  GradientKind sources = GradientKind::replicate);
  std::size_t size() const { return recent_.size(); }
  /// The number of calls that had to plan.
  std::size_t planned() const { return planned_; }

 private:
  RankId rank_;
  std::size_t capacity_, planned_ = 0;
  std::list<std::shared_ptr<Resharder>> recent_;  ///< latest first
};

}  // namespace heteroperf
