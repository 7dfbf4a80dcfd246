#pragma once

#include <string>
#include <vector>

#include "results/comparison/baseline_replacement.hpp"
#include "results/comparison/baseline_store.hpp"

namespace heteroperf {

/// Saved baselines with the runs in them; files that cannot be read are named with the reason.
std::string baseline_listing_text(const std::vector<SavedBaseline>& baselines);
/// `refused`: of a save that was not done.
std::string baseline_listing_json_text(const std::vector<SavedBaseline>& baselines,
                                       const BaselineReplacement& refused = {});

}  // namespace heteroperf
