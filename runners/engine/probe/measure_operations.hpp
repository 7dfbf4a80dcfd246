#pragma once

#include <set>
#include <vector>

#include "runners/engine/engine.hpp"

namespace heteroperf {

/// Runs the operations of a model on the calling thread as a training's step would, with the
/// operators, tensor formats and memory pool of the engine: all of them forwards in the order of
/// the graph, each on what the ones before it gave, then backwards. Like operations run once for
/// all, so neither time nor memory grow with the depth. One round warms up, then rounds with both
/// gradients at once and rounds with them apart take turns, at least five of them.
OperationProbeResult measure_operations(const OperationProbe& probe);

/// Times our operators and LibTorch's in turns, and takes the best turn of each.
std::vector<OperatorTime> time_operators(const OperationProbe& probe);

/// See Engine.
std::set<ProductShape> products_of(const TrainingSpec& spec, RankId rank);
std::vector<ProductTimes> time_products(const std::vector<ProductShape>& shapes, int threads,
                                        double seconds);
/// The fastest way of each product that the operations of a probe make, by this rank alone; all
/// take LibTorch's on GPUs and where they are not float32. Takes about `seconds`.
ProductChoices fastest_products(const OperationProbe& probe, double seconds);

}  // namespace heteroperf
