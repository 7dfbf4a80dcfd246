#pragma once

#include <ATen/core/Tensor.h>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Throws UserError for a type that communicators cannot carry.
DataType data_type(at::ScalarType type);

/// A dense tensor's elements in the order of memory, as communicators take them. Throws UserError
/// for a type they cannot carry.
MutableBuffer buffer_of(const at::Tensor& tensor);

/// In place. A device's tensor is waited for, and goes through the host's memory unless the
/// group's buffers are on the device.
void all_reduce(Communicator& group, const at::Tensor& tensor, Reduction reduction);

}  // namespace heteroperf
