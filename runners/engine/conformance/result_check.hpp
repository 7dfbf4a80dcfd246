#pragma once

#include <string>

#include "runners/engine/conformance/operator_cases.hpp"

namespace heteroperf {

/// The largest relative error of rounding to a format.
double roundoff(at::ScalarType type);
/// The smallest normal number of a format: below it a device may give zero.
double smallest(at::ScalarType type);

/// The mean signed errors of which it is known that they must be near 0: those of x − r and of
/// |x| − |r|; of x − r alone, where all results share an error that is a part of each; or none,
/// where a factor that was rounded moves all results alike.
enum class Leans { both_ways, as_signed, unknown };

/// Holds the tensors that one case leaves on a device against what they must be.
class ResultCheck {
 public:
  ResultCheck(std::string text, OperandValues operands, OperatorVerdict& verdict)
      : text_(std::move(text)), operands_(operands), verdict_(verdict) {
    ++verdict_.cases;
  }

  /// `u` is the roundoff of the result, which was added to `before`.
  void hold(const std::string& what, const at::Tensor& actual, const Approximation& expected,
            double u, double before = 0, Leans leans = Leans::both_ways);
  /// Notes whether another run gave the same bits, or no number in both.
  void repeat(const at::Tensor& first, const at::Tensor& second);

 private:
  void hold_bias(const std::string& what, const at::Tensor& x, const at::Tensor& r,
                 const at::Tensor& e, Leans leans);
  void note_unit(double error, double golden, double u, double tiny);
  void fail(const std::string& how);

  std::string text_;
  OperandValues operands_;
  OperatorVerdict& verdict_;
  bool is_wrong_ = false;
};

}  // namespace heteroperf
