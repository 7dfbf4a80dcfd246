// Started by mpirun: every rank runs every test, in step with the others.
#include <gtest/gtest.h>

#include "tests/ranks/comm/joined_world.hpp"
#include "tests/unit/suite/hosts_watch_cases.hpp"

namespace heteroperf {
namespace {

TEST(HostsWatchOnMpi, EveryHostTellsOfItself) { test::check_hosts_watch(joined_world()); }

}  // namespace
}  // namespace heteroperf
