#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Counts the rows of `logits` {…, classes} whose largest value is at the class that `targets` {…}
/// names. Of equal values the lowest class counts.
std::uint64_t count_right(const at::Tensor& logits, const at::Tensor& targets);

/// The same where every rank of `group` has the columns of some classes, from `first_class` on.
/// Collective; the same count on all of them.
std::uint64_t count_right(const at::Tensor& logits, const at::Tensor& targets,
                          std::int64_t first_class, Communicator& group);

}  // namespace heteroperf
