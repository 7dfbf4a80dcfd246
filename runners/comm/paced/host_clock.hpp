#pragma once

#include "runners/comm/paced/link_clock.hpp"

namespace heteroperf {

/// The clock that all processes of this host share.
Instant host_now();
/// Sleeps, perhaps a little longer: for looks in between, which leave the core to others.
void nap_until(Instant wake);
/// Sleeps, and spins for the last moments.
void sleep_until(Instant due);

/// Equal on ranks whose host_now() agree: the kernel's boot id, as a number. 0 when unknown.
std::uint64_t host_clock_id();

}  // namespace heteroperf
