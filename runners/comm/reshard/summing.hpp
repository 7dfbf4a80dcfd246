#pragma once

#include <cstdint>
#include <vector>

#include "runners/comm/reshard/freight.hpp"

namespace heteroperf {

/// Stages sum_inside and sum_across: every parcel's sources are summands, several of them meet at
/// one rank. Returns what remains to be delivered: boxes with one source that has the value.
std::vector<Parcel> add_up(std::vector<Parcel> parcels, std::int64_t smallest_slice,
                           const RankPlaces& places, FreightList& list, std::vector<Sum>& sums);

}  // namespace heteroperf
