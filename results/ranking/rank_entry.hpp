#pragma once

#include "results/ranking/ranking.hpp"

namespace heteroperf {

/// The value of the order's key in a record; OPS per watt is in no record.
std::optional<double> value_by(RankKey key, const RunDigest& run);

/// One entry of repetitions, by date; at least one.
RankEntry make_entry(const std::vector<const RunDigest*>& repeats, RankKey key,
                     const RankTables& tables);

/// Sorts, and gives ranks from 1.
void give_ranks(std::vector<RankEntry>& entries);
/// Gives `scaling_efficiency` where an entry has a smaller run of its own system.
void give_efficiency(std::vector<RankEntry>& entries);

}  // namespace heteroperf
