#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "metrics/ops.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

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
  int counted_depth_ = 0;  ///< of counted operators around the present one
};

}  // namespace heteroperf
