#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "runners/engine/parameters/parameter_store.hpp"

namespace heteroperf {

/// Σ x² over ranges of a flat tensor, in float64 and in an order that depends on the ranges alone.
double square_sum(const at::Tensor& flat, std::span<const ArenaRange> ranges);

}  // namespace heteroperf
