#pragma once

#include "runners/plan/sailor/search/sailor_pipelines.hpp"

namespace heteroperf {

/// Seconds that no plan of these devices can go below by either score: every sample passes every
/// layer, layers and samples may be divided at will, every device works at its best degree and size
/// of micro-batch all the time, and messages, sums and updates take no time. With u_pl the least
/// device-seconds per sample, for any slowness s_p of the places and λ_l = min_p u_pl / s_p:
/// T ≥ batch · Σ_l λ_l / Σ_p n_p / s_p; the best of some s.
double sailor_work_bound_s(const SailorTables& tables, const SailorDevices& devices);

}  // namespace heteroperf
