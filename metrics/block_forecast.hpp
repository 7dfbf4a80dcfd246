#pragma once

#include <cstddef>
#include <optional>

#include "metrics/sequential_test.hpp"

namespace heteroperf {

/// How likely a forecast is that names a number of blocks. More than that come true: gates that
/// cannot tell have mostly seen more spread than there is.
inline constexpr double forecast_chance = 0.7;
/// More blocks in all are not foreseen.
inline constexpr std::size_t most_foreseen_blocks = 200;

/// Chance that a gate of at most `blocks` blocks, run anew, settles the metric of which `seen` is
/// known: the share of simulated gates that do, with the mean and the spreads drawn from what
/// `seen` leaves possible (flat priors of the mean and of the logarithms of both spreads), and the
/// very levels of their looks. A rule of one look stands for one look after `blocks`. `judged` is
/// what the rule says of `seen`; what other metrics add to its p-value is taken to stay. The same
/// arguments give the same chance.
double chance_to_settle(const Evidence& seen, const Judgement& judged, std::size_t blocks,
                        const SequentialRule& rule);

/// How many blocks more than `seen` a gate needs to settle the metric with `forecast_chance`;
/// absent where `most_foreseen_blocks` in all would not do.
std::optional<std::size_t> blocks_to_settle(const Evidence& seen, const Judgement& judged,
                                            const SequentialRule& rule);

}  // namespace heteroperf
