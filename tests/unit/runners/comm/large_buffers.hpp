#pragma once

#include <cstddef>
#include <string>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// More elements than an int counts.
constexpr std::size_t large_count = (std::size_t{1} << 31) + 5;

/// Collective: why `large_count` bytes per rank have no room here; empty where they have.
std::string no_room_for_large(Communicator& comm);

/// All-reduce, broadcast, all-gather and messages of `large_count` bytes and of none, checked at
/// their ends, around 2^31 and at some 60 000 places between; for 2 ranks or more.
void run_large_operations(Communicator& comm);

}  // namespace heteroperf
