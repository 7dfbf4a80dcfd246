#pragma once

#include <set>
#include <vector>

#include "runners/engine/engine.hpp"

namespace heteroperf {

/// See Engine.
std::set<ProductShape> products_of(const TrainingSpec& spec, RankId rank);
std::vector<ProductTimes> time_products(const std::vector<ProductShape>& shapes, int threads,
                                        double seconds);

}  // namespace heteroperf
