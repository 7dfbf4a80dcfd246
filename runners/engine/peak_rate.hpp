#pragma once

#include <ATen/core/Tensor.h>

#include "workloads/recipe.hpp"

namespace heteroperf {

/// LibTorch's element type of a precision.
at::ScalarType scalar_type(Precision precision);

/// Sets the calling thread's intra-operation threads. Each rank thread has its own number.
void use_threads(int threads);

/// Best rate, in operations per second (2 per multiply-add), of square matrix products of 1024 and
/// 2048 over about `seconds`.
double measure_matrix_rate(Precision precision, int threads, double seconds);

/// The same on CUDA device `gpu`, of products of 4096 and 8192, by the device's clock.
double measure_cuda_matrix_rate(Precision precision, int gpu, double seconds);

}  // namespace heteroperf
