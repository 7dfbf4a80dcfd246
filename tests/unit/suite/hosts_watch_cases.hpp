#pragma once

#include "runners/comm/world.hpp"
#include "suite/watch/hosts_watch.hpp"

namespace heteroperf::test {

/// What the watch says of two hosts, "even" and "odd" by rank, whose counters are made up. Every
/// rank of the world calls it.
void check_hosts_watch(World& world);

}  // namespace heteroperf::test
