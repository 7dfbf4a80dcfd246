#pragma once

#include <ATen/core/Tensor.h>

#include "runners/comm/buffer.hpp"

namespace heteroperf {

/// Throws UserError for a type that communicators cannot carry.
DataType data_type(at::ScalarType type);

/// A dense tensor's elements in the order of memory, as communicators take them. Throws UserError
/// for a type they cannot carry.
MutableBuffer buffer_of(const at::Tensor& tensor);

}  // namespace heteroperf
