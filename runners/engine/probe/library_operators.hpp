#pragma once

#include <vector>

#include "runners/engine/engine.hpp"

namespace heteroperf {

/// Seconds that LibTorch's own operators take, one after another as eager code calls them; 0 where
/// it has none for a node of the chain.
struct LibrarySeconds {
  double forward_s = 0, backward_s = 0;
};

/// Times LibTorch's operators for each of the probe's operations, for about `seconds` in all, in
/// turns as a step would call them. In the order of OperationProbe::model.
std::vector<LibrarySeconds> time_library_operators(const OperationProbe& probe, double seconds);

/// Times our operators and LibTorch's, each in two turns, and takes the better turn of each.
std::vector<OperatorTime> time_operators(const OperationProbe& probe);

}  // namespace heteroperf
