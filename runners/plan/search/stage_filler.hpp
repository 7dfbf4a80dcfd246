#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "runners/plan/search/score/draft_scorer.hpp"

namespace heteroperf {

/// Devices that a stage may use, by pool.
using DeviceCounts = std::vector<int>;

/// Values that all stages of a pipeline share.
struct FillRules {
  std::int64_t samples = 1;  ///< in a micro-batch
  int micro_batches = 1;
  int zero_stage = 1;
  bool split_backward = false;  ///< W apart from B

  /// A batch in micro-batches of so many samples: ZeRO-1, and B with W in one pass.
  static FillRules of_batch(std::int64_t batch, std::int64_t samples) {
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    return {samples, static_cast<int>(std::min(batch / samples, most))};
  }

  /// Counts what a rank of a stage holds that keeps so many micro-batches.
  LayerSums::Holding holding(Recomputation recomputation, int in_flight) const {
    return {recomputation, std::min(in_flight, micro_batches), 1, split_backward};
  }
};

/// Makes single stages of devices: how much of the model they can take, and how they share it.
class StageFiller {
 public:
  /// The scorer outlives it.
  explicit StageFiller(const DraftScorer& scorer);

  /// The longest range of layers before `end` that the devices do within `period_s` per micro-batch
  /// with `in_flight` of them kept, and its stage; nothing where not even one layer goes. `likely`:
  /// about how many layers that may be; 0: no idea.
  std::optional<DraftStage> fill(const DeviceCounts& devices, int end, int in_flight,
                                 double period_s, const FillRules& rules, int likely = 0) const;

  /// The stage of exactly these layers; nothing where the devices are too few.
  /// Its groups may take more than a micro-batch together; balance() makes the shares exact.
  std::optional<DraftStage> fill_range(const DeviceCounts& devices, LayerSums::Range range,
                                       int in_flight, double period_s,
                                       const FillRules& rules) const;

  /// The shares of a micro-batch with which a stage of these replicas (of any samples) is fastest:
  /// its layers, recomputation and warm-up stay. Replicas may be left without work, and are then
  /// left out. Nothing where memory or tables have no room.
  std::optional<DraftStage> balance(const DraftStage& stage, const FillRules& rules) const;

  /// Balances the stages [first, end) of a draft of micro-batches of so many samples; false where
  /// one of them has no room.
  bool balance(PipelineDraft& draft, std::int64_t samples, std::size_t first,
               std::size_t end) const;

  const DraftScorer& scorer() const { return scorer_; }
  /// PlanningProblem::least_device_seconds().
  const std::vector<std::vector<double>>& device_seconds() const { return device_seconds_; }

 private:
  struct Capacity {
    std::int64_t samples = 0;  ///< that one replica takes
    std::int64_t in_time = 0;  ///< as many if memory had no end
    int degree = 0;
    int replicas = 0;
    std::int64_t all() const { return samples * replicas; }
  };
  enum class Room { enough, too_slow, too_little_memory };
  /// Samples that one replica of the group takes, and how many if memory did not count.
  Capacity capacity(ReplicaGroup group, LayerSums::Range range, const LayerSums::Holding& holding,
                    double period_s, const FillRules& rules) const;
  /// Writes the best degree of every pool to `chosen` and says whether all pools together have
  /// room, and otherwise what they lack.
  Room room(const DeviceCounts& devices, LayerSums::Range range, const LayerSums::Holding& holding,
            double period_s, const FillRules& rules, std::vector<Capacity>& chosen) const;
  /// True when the devices can take the range at some recomputation; writes the stage unless
  /// `stage` is null.
  bool takes(const DeviceCounts& devices, LayerSums::Range range, int in_flight, double period_s,
             const FillRules& rules, DraftStage* stage) const;

  const DraftScorer& scorer_;
  std::vector<std::vector<double>> device_seconds_;
  std::vector<std::vector<std::vector<std::int64_t>>> sizes_;  ///< [pool][degree]: known, ascending
};

}  // namespace heteroperf
