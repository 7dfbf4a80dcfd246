#pragma once

#include <cstdint>

#include "runners/plan/sailor/search/sailor_plain_search.hpp"

namespace heteroperf {

/// By which of Sailor's scores.
enum class SailorScore {
  published,  ///< `sailor`: plans that Sailor can express
  extended,   ///< `sailor+`
};

struct SailorSearchOptions {
  SailorScore score = SailorScore::published;
  SailorLayers layers = SailorLayers::any;  ///< of `sailor`
  double time_limit_s = 10;                 ///< then the best so far is the result
  int most_stages = 0;                      ///< 0: as the search has it
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

}  // namespace heteroperf
