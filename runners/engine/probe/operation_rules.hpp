#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>

#include "metrics/ops.hpp"

namespace heteroperf {

/// How many operations one call of a LibTorch operator is, in the `strict` convention: 2 per
/// multiply-add of tensor operations alone; a causal mask halves the pairs; attention backward has
/// four products.
struct OperationRule {
  enum class Per { call, output_element };

  std::string_view name;  ///< without overload: "aten::mm"
  Ops (*count)(c10::ArrayRef<c10::IValue> inputs);
  Per per = Per::call;  ///< output_element: multiply by the elements of the (first) output
};

/// The rule of `name`, or null when it is not on the fixed list.
const OperationRule* find_operation_rule(std::string_view name);

/// Whether a name outside the list looks like a tensor operation (matrix products, convolutions,
/// attention, any operator of this program's own).
bool looks_like_tensor_operation(std::string_view name);

}  // namespace heteroperf
