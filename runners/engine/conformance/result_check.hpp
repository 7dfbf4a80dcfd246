#pragma once

#include <string>

#include "runners/engine/conformance/operator_cases.hpp"

namespace heteroperf {

/// The largest relative error of rounding to a format.
double roundoff(at::ScalarType type);
/// The smallest normal number of a format: below it a device may give zero.
double smallest(at::ScalarType type);

/// Holds the tensors that one case leaves on a device against what they must be.
class ResultCheck {
 public:
  ResultCheck(std::string text, OperandValues operands, OperatorVerdict& verdict)
      : text_(std::move(text)), operands_(operands), verdict_(verdict) {
    ++verdict_.cases;
  }

  /// `u` is the roundoff of the result, which was added to `before`.
  void hold(const std::string& what, const at::Tensor& actual, const Approximation& expected,
            double u, double before = 0);
  /// Notes whether another run gave the same bits, or no number in both.
  void repeat(const at::Tensor& first, const at::Tensor& second);

 private:
  void hold_bias(const std::string& what, const at::Tensor& x, const at::Tensor& r,
                 const at::Tensor& e);
  void note_unit(double error, double golden, double u, double tiny);
  void fail(const std::string& how);

  std::string text_;
  OperandValues operands_;
  OperatorVerdict& verdict_;
  bool is_wrong_ = false;
};

}  // namespace heteroperf
