#pragma once

#include <vector>

#include "runners/engine/conformance.hpp"

namespace heteroperf {

/// Holds every operator of the calling thread's device against the reference, forward and all
/// gradients, and the updates of the optimizers. One verdict per operator, in the order of names.
std::vector<OperatorVerdict> check_operators(const ConformanceRequest& request);

}  // namespace heteroperf
