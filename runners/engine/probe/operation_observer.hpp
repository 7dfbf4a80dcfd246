#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "metrics/ops.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// Counts the operations of one call of a LibTorch operator in the `strict` convention: 2 per
/// multiply-add, tensor operations alone. A causal mask halves the pairs; attention's backward pass
/// has four products.
struct OperationRule {
  enum class Per { call, output_element };

  std::string_view name;  ///< without overload: "aten::mm"
  Ops (*count)(c10::ArrayRef<c10::IValue> inputs);
  Per per = Per::call;  ///< output_element: multiply by the elements of the (first) output
};

/// The rule of `name`, or null when it is not on the fixed list.
const OperationRule* find_operation_rule(std::string_view name);

/// A name outside the list that looks like a tensor operation: a matrix product, a convolution,
/// attention, or any operator of this program's own.
bool looks_like_tensor_operation(std::string_view name);

/// Counts the tensor operations this thread calls through LibTorch's dispatcher while it lives.
///
/// An operator inside a counted one is not counted again (conv2d → convolution → mkldnn_…). An
/// operator that looks like a tensor operation, has no rule and calls none that has, is named in
/// `unknown`. One observer per thread at a time.
class OperationObserver {
 public:
  OperationObserver();
  ~OperationObserver();
  OperationObserver(const OperationObserver&) = delete;
  OperationObserver& operator=(const OperationObserver&) = delete;

  ObservedOperations observed() const;

 private:
  friend struct ObserverCalls;

  std::uint64_t callback_ = 0;
  Ops executed_;
  std::uint64_t calls_ = 0;
  std::set<std::string> unknown_;
  int counted_depth_ = 0;  ///< counted operators around the present one
};

}  // namespace heteroperf
