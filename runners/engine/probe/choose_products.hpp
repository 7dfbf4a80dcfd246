#pragma once

#include <set>
#include <vector>

#include "runners/engine/engine.hpp"

namespace heteroperf {

/// See Engine.
std::set<ProductShape> products_of(const TrainingSpec& spec, RankId rank);
std::vector<ProductTimes> time_products(const std::vector<ProductShape>& shapes, int threads,
                                        double seconds);

/// The fastest way of each product that the operations of a probe make, by this rank alone; all
/// take LibTorch's on GPUs and where they are not float32. Takes about `seconds`.
ProductChoices fastest_products(const OperationProbe& probe, double seconds);

}  // namespace heteroperf
