#pragma once

#include <span>

#include "runners/comm/world.hpp"

namespace heteroperf {

/// One behaviour every transport must show. All ranks of the world run it together; what it finds
/// wrong it reports through GoogleTest's EXPECT, so that ranks stay in step.
struct CommunicatorCase {
  const char* name;
  void (*run)(World& world);
};

std::span<const CommunicatorCase> communicator_cases();

/// Returns when all ranks are through.
void run_case(const CommunicatorCase& one, World& world);

}  // namespace heteroperf
