#pragma once

#include "results/ranking/ranking.hpp"

namespace heteroperf {

/// The metric of a record that an order is made of. OPS per device and per watt are OPS over a
/// constant of the entry, so they have the spread of OPS.
const char* metric_of(RankKey key);

/// One entry of repetitions, by date; at least one.
RankEntry make_entry(const std::vector<const RunDigest*>& repeats, RankKey key,
                     const RankTables& tables);

/// Sorts, and gives ranks from 1.
void give_ranks(std::vector<RankEntry>& entries);
/// Gives `scaling_efficiency` where an entry has a smaller run of its own system.
void give_efficiency(std::vector<RankEntry>& entries);

}  // namespace heteroperf
