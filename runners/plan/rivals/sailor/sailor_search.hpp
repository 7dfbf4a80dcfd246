#pragma once

#include <cstdint>

#include "runners/plan/rivals/sailor/sailor_cuts.hpp"

namespace heteroperf {

/// Sailor's scores.
enum class SailorScore {
  published,  ///< `sailor`: plans that Sailor can express
  extended,   ///< `sailor+`
};

struct SailorSearchOptions {
  SailorScore score = SailorScore::published;
  double time_limit_s = 10;  ///< then the best so far is the result
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
/// links, and where the model fits nowhere, by how much.
SailorSearchResult search_sailor(const SailorTables& tables, const SailorDevices& devices,
                                 const SailorSearchOptions& options);

/// Seconds that no plan of these devices can go below by either score: every sample passes every
/// layer, layers and samples may be divided at will, every device works at its best degree and size
/// of micro-batch all the time, and messages, sums and updates take no time. With u_pl the least
/// device-seconds per sample, for any slowness s_p of the places and λ_l = min_p u_pl / s_p:
/// T ≥ batch · Σ_l λ_l / Σ_p n_p / s_p; the result is the best of some s.
double sailor_work_bound_s(const SailorTables& tables, const SailorDevices& devices);

}  // namespace heteroperf
