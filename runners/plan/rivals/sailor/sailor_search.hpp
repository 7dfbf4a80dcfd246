#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "metrics/base/clock.hpp"
#include "runners/plan/rivals/sailor/sailor_plan.hpp"

namespace heteroperf {

/// Sailor's scores.
enum class SailorScore {
  published,  ///< `sailor`: plans that Sailor can express
  extended,   ///< `sailor+`
};

struct SailorSearchResult {
  SailorPlan plan;
  double step_time_s = 0;
  /// `sailor+`: seconds of the best step if pipelines could be used in fractions, over the cuts
  /// looked at; 0 for `sailor`.
  double fractional_s = 0;
  std::uint64_t candidates = 0;  ///< plans scored, and packings bounded
  double seconds = 0;
  bool complete = true;  ///< it ended by itself
};

/// The best plan found for these devices; it passes check_sailor_plan(). Deterministic where it
/// ends by itself. Throws UserError where there are no devices, where no device has a profile or
/// links, and where the model fits nowhere, by how much. After the time limit the best so far is
/// the result.
SailorSearchResult search_sailor(const SailorTables& tables, const SailorDevices& devices,
                                 SailorScore score, double time_limit_s);

/// Seconds that no plan of these devices can go below by either score: every sample passes every
/// layer, layers and samples may be divided at will, every device works at its best degree and size
/// of micro-batch all the time, and messages, sums and updates take no time. With u_pl the least
/// device-seconds per sample, for any slowness s_p of the places and λ_l = min_p u_pl / s_p:
/// T ≥ batch · Σ_l λ_l / Σ_p n_p / s_p; the result is the best of some s.
double sailor_work_bound_s(const SailorTables& tables, const SailorDevices& devices);

/// One search: what it is for, how long it may still take, and its result so far.
struct SailorSearch {
  const SailorTables& tables;
  const SailorDevices& devices;
  double time_limit_s = 10;
  Stopwatch stopwatch;
  SailorSearchResult result;

  /// False, and noted in the result, after the time limit.
  bool has_time();
  int all_devices() const;
  /// The most stages of a plan that are of use: none without a layer or a device.
  int most_stages(int most) const;
};
/// The two searches that search_sailor() chooses from. They leave the result without stages where
/// nothing fits.
void search_published(SailorSearch& search);
void search_extended(SailorSearch& search);

/// Spreads layers as Sailor does: evenly, the rest to the last stages. Bounds are the first layer
/// of every stage, and the layers' number.
std::vector<int> even_bounds(int layers, int stages);
inline SailorLayers layers_between(const std::vector<int>& bounds, std::size_t stage) {
  return {bounds[stage], bounds[stage + 1]};
}

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
