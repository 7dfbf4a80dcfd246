#pragma once

#include <cstdint>
#include <vector>

#include "runners/plan/rivals/sailor/sailor_cuts.hpp"

namespace heteroperf {

/// Spreads layers as Sailor does: evenly, the rest to the last stages. Gives the first layer of
/// every stage, and the layers' number.
std::vector<int> even_bounds(int layers, int stages);

/// The plans that Sailor can express: one size of micro-batch, as many replicas in every stage. For
/// every shape (stages, replicas, size) and length of the sums over replicas the shortest pace at
/// which the devices suffice, by a linear program over stages and places, and the plan rounded from
/// it; the best are improved by moving replicas and cuts and by changing degrees.
class SailorPlainSearch {
 public:
  /// `tables` and `devices` outlive it.
  SailorPlainSearch(const SailorTables& tables, const SailorDevices& devices);

  /// Looks at every shape of so many even stages; keeps the best plans.
  void lay_out(int stages);
  /// Looks at the cuts next to those of the best plan. False: nothing better there.
  bool lay_out_beside_best();
  /// Improves the next of what is kept until no move does. False: all are.
  bool improve_next();
  /// Null: nothing fits.
  const ScoredSailorPlan* best() const { return kept_.empty() ? nullptr : &kept_.front(); }
  std::uint64_t candidates() const { return candidates_; }

 private:
  /// The numbers that all plans rounded from one linear program share.
  struct Shape {
    std::vector<int> bounds;
    int width = 1;
    std::int64_t micro_batch = 1, micro_batches = 1;
    double reduction_s = 0;
    std::vector<std::vector<StageRule>> rules;  ///< [stage]: any of them
    std::size_t stages() const { return bounds.size() - 1; }
  };
  /// [stage][seat]: seconds of a micro-batch, if neighbours have the same seat; infinite where it
  /// does not fit.
  using PaceTable = std::vector<std::vector<double>>;

  /// Seconds of every seat in every stage, the sends of a micro-batch included.
  PaceTable pace_table(const Shape& shape) const;
  void lay_out(const std::vector<int>& bounds, int least_width, int most_width);
  void lay_out(const Shape& shape);
  void decide(Shape& shape, const PaceTable& table, double pace) const;
  double step_s(const Shape& shape, const PaceTable& table, double pace) const;
  std::vector<SailorReplicas> seats_within(const Shape& shape, const PaceTable& table,
                                           std::size_t stage, double pace) const;
  PackingProblem packing(const Shape& shape, const PaceTable& table, double pace) const;
  /// True when fractions of replicas fill every stage at that pace with the devices that there are.
  bool enough(const Shape& shape, const PaceTable& table, double pace) const;
  SailorPlan rounded(const Shape& shape, const PaceTable& table, double pace) const;
  bool allowed(const SailorPlan& plan) const;
  bool better(SailorPlan plan, ScoredSailorPlan& than);
  bool improve(ScoredSailorPlan& plan);
  bool convert(ScoredSailorPlan& plan, std::size_t stage, std::size_t group);
  bool exchange(ScoredSailorPlan& plan, std::size_t stage, std::size_t group);
  bool shift(ScoredSailorPlan& plan, std::size_t cut);
  /// Scores a plan and adds it to the list where it is good enough.
  void keep(const SailorPlan& plan);

  const SailorTables& tables_;
  const SailorDevices& devices_;
  std::vector<SailorReplicas> seats_;   ///< place and degree, count 0
  std::vector<ScoredSailorPlan> kept_;  ///< the best first
  std::vector<ScoredSailorPlan> open_;  ///< kept plans that are not yet improved
  bool improving_ = false;
  std::uint64_t candidates_ = 0;
};

}  // namespace heteroperf
