#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "metrics/ops.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

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
  struct Call;
  /// Looks at a call that begins. Calls inside a counted one are passed over.
  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& call);
  /// A suspect inside which nothing was counted is an operator that the list lacks.
  static void end(const at::RecordFunction& call, at::ObserverContext* context);

  std::uint64_t callback_ = 0;
  Ops executed_;
  std::uint64_t calls_ = 0;
  std::set<std::string> unknown_;
  int counted_depth_ = 0;  ///< counted operators around the present one
};

}  // namespace heteroperf
