#pragma once

#include <cstdint>
#include <vector>

#include "runners/engine/pipeline/rank_stages.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// Puts the mean of all replicas' running statistics into every replica for as long as it lives;
/// then each has its own again. Each replica's statistics come from its own micro-batches.
/// Collective.
class AveragedStatistics {
 public:
  AveragedStatistics(const TrainingSpec& spec, Communicator& world, const RankStages& stages);
  ~AveragedStatistics();
  AveragedStatistics(const AveragedStatistics&) = delete;
  AveragedStatistics& operator=(const AveragedStatistics&) = delete;

 private:
  std::vector<double> sum_over_replicas(std::vector<std::size_t>& first) const;

  const TrainingSpec& spec_;
  Communicator& world_;
  std::vector<RankStages::Buffers> buffers_;
  std::vector<Tensors> replica_values_;  ///< empty: nothing was replaced
};

/// Mean loss and accuracy over `samples` of the validation split from `first` on (up to its end
/// when fewer are left). Collective. Throws UserError when there are none.
EvaluationReport evaluate(const TrainingSpec& spec, Communicator& world, RankStages& stages,
                          std::uint64_t first, std::uint64_t samples);

}  // namespace heteroperf
