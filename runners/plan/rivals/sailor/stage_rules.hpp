#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "runners/plan/rivals/sailor/sailor_search.hpp"

namespace heteroperf {

/// The places (a bit each) and the least degree that a stage allows itself so that its sum over
/// replicas is short.
struct StageRule {
  std::uint32_t places = 0;
  int least_tensor = 1;
  bool allows(const SailorSeat& seat) const {
    return (places >> seat.place & 1) != 0 && seat.tensor >= least_tensor;
  }
  friend auto operator<=>(const StageRule&, const StageRule&) = default;
};

/// Sums over replicas of the stages between given bounds, by their rules.
class StageRules {
 public:
  /// All outlive it.
  StageRules(const SailorTables& tables, const std::vector<int>& bounds,
             const SailorDevices& devices);

  /// Seconds of the slowest sum that replicas which keep the rule can have.
  double reduction_s(std::size_t stage, const StageRule& rule, int width) const;
  /// Every rule whose sum is no longer, but for those that another of them contains.
  std::vector<StageRule> within(std::size_t stage, double limit_s, int width) const;
  /// Every length that the sum of a stage may have.
  std::set<double> lengths(int width) const;
  /// Every degree that a device has a profile of.
  const std::set<int>& degrees() const { return degrees_; }

 private:
  const SailorTables& tables_;
  const std::vector<int>& bounds_;
  std::vector<int> places_;
  std::set<int> degrees_;
  std::uint32_t all_ = 0;
};

}  // namespace heteroperf
