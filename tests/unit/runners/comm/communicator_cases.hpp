#pragma once

#include <cstdint>
#include <span>

#include "runners/comm/world.hpp"

namespace heteroperf {

/// One behaviour every communicator must show, on any number of ranks up to 8. All ranks of the
/// group run it together; what it finds wrong it reports through GoogleTest's EXPECT, so that ranks
/// stay in step. Inputs are small whole numbers, whose sums are exact in any order and every type.
struct CommunicatorCase {
  const char* name;
  void (*run)(Communicator& comm);
};

std::span<const CommunicatorCase> communicator_cases();
/// The part of them about messages between two ranks.
std::span<const CommunicatorCase> transfer_cases();

/// Returns when all ranks are through.
void run_case(const CommunicatorCase& one, Communicator& comm);
void run_case(const CommunicatorCase& one, World& world);

/// Any operation with any arguments, drawn from `step`, and checked. All ranks pass the same one.
void run_random_operation(Communicator& comm, std::uint64_t step);

/// One behaviour of a world with its control channel. The last case stops the world for good.
struct WorldCase {
  const char* name;
  void (*run)(World& world);
};

std::span<const WorldCase> world_cases();

void run_case(const WorldCase& one, World& world);

}  // namespace heteroperf
