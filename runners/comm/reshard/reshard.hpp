#pragma once

#include <memory>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/comm/reshard/rank_program.hpp"

namespace heteroperf {

/// Carries out one plan on one rank, any number of times, with staging memory that is kept.
/// Collective: all ranks that the plan's layouts name run it, on a group whose rank numbers are
/// the plan's; others may, to no effect.
class Resharder {
 public:
  Resharder(std::shared_ptr<const ReshardPlan> plan, RankId rank);

  /// `mine` holds this rank's tiles of plan.from, `result` becomes those of plan.to (Layout says
  /// in which order); they do not overlap. `tag` serves this call alone. Throws UserError when a
  /// count or type is not the plan's, and what the transport's waits throw.
  void run(Communicator& group, ConstBuffer mine, MutableBuffer result, int tag = 0);

  const ReshardPlan& plan() const { return *plan_; }

 private:
  void check(const Communicator& group, ConstBuffer mine, MutableBuffer result) const;

  std::shared_ptr<const ReshardPlan> plan_;
  RankId rank_, highest_rank_;
  RankProgram program_;
  std::unique_ptr<std::byte[]> staging_, arena_;
};

/// Works the plan out for this rank and runs it once.
void reshard(Communicator& group, const ReshardPlan& plan, ConstBuffer mine, MutableBuffer result,
             int tag = 0);

}  // namespace heteroperf
