#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "runners/engine/engine.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// One way to multiply at one shape.
struct ProductTrial {
  std::string way;        ///< the operator's name
  std::string shape;      ///< "1024x1024x1024": rows, inner extent, columns
  double operations = 0;  ///< one call has so many, 2 per multiply-add
  /// Makes the operands; what it returns multiplies them once. It or the first call throws
  /// c10::Error where this LibTorch or this processor lacks the way.
  std::function<std::function<void()>()> prepare;
};

/// The products on the host, at three shapes each, the smallest first: mm and addmm (of LibTorch's
/// BLAS), oneDNN's product by an operator and as the operators take it, ours, and a convolution of
/// 3x3 without padding. Shapes grow
/// with the threads so that a call stays about as long.
std::vector<ProductTrial> host_products(at::ScalarType type, int threads);

using SecondsClock = std::function<double()>;

/// The trial with the fastest call. Every trial gets its part of the `seconds` that are left and
/// one call at least; once they are over, the rest is not tried. Errors of aten::mm are the
/// caller's, other ways that throw c10::Error are left out.
FastestProduct fastest_of(const std::vector<ProductTrial>& trials, double seconds,
                          const SecondsClock& clock);

/// See Engine.
FastestProduct find_fastest_product(Precision precision, int threads, double seconds);
/// The same on CUDA device `gpu`, of mm and addmm.
FastestProduct find_fastest_cuda_product(Precision precision, int gpu, double seconds);

/// Bytes per second that a device reads and writes in the fastest of its copies of a tensor of
/// `bytes`, one after another until `seconds` are over. `wait` returns once a copy is done.
double fastest_copy(const at::TensorOptions& options, std::uint64_t bytes, double seconds,
                    const std::function<void()>& wait, const SecondsClock& clock);
/// See Engine.
double measure_cuda_memory(int gpu, double seconds);

}  // namespace heteroperf
