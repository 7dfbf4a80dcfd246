#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runners/engine/conformance.hpp"
#include "runners/engine/conformance/golden.hpp"

namespace heteroperf {

/// The numbers that an operator is tried with, and where those that are not simply drawn stand.
enum class OperandValues { drawn, zero, denormal, infinity, not_a_number };
constexpr std::array<const char*, 5> value_names(OperandValues) {
  return {"drawn", "zero", "denormal", "infinity", "nan"};
}
enum class OperandPlace { inputs, output_gradient, parameters };
constexpr std::array<const char*, 3> value_names(OperandPlace) {
  return {"inputs", "the output's gradient", "parameters"};
}
enum class OperandLayout { canonical, strided };
constexpr std::array<const char*, 2> value_names(OperandLayout) { return {"canonical", "strided"}; }

struct OperandForm {
  OperandValues values = OperandValues::drawn;
  OperandPlace place = OperandPlace::inputs;
  OperandLayout layout = OperandLayout::canonical;

  OperandValues values_of(OperandPlace where) const {
    return where == place ? values : OperandValues::drawn;
  }
};

/// One call that is to be checked: an operator of a graph, a batch, and what its operands are.
struct OperatorCase {
  std::shared_ptr<const ModelGraph> graph;
  std::vector<NodeId> nodes;  ///< the operator is made of them
  std::int64_t samples = 1;
  OperandForm operands = {};
};

/// The kinds of its nodes: "linear+gelu".
std::string operator_name(const ModelGraph& graph, const std::vector<NodeId>& nodes);
/// "linear+gelu {64} -> {256} x 128, strided".
std::string case_text(const OperatorCase& one);

/// The operators of a workload's graph, those of one form once.
std::vector<OperatorCase> cases_of(const std::shared_ptr<const ModelGraph>& graph,
                                   std::int64_t samples);
/// Every kind of operator at extents 1 to 16384 that fill no vector, and with zero, denormal,
/// infinite and undefined inputs, output gradients and parameters; `quick` leaves the long ones
/// out.
std::vector<OperatorCase> corner_cases(bool quick);

/// Numbers of a kind in float64; a denormal one is so in `type`.
at::Tensor draw_operand(at::IntArrayRef sizes, OperandValues operands, at::ScalarType type,
                        std::uint64_t seed);
/// Draws the operands of a case, rounded to `type`, in the host's memory. The group is the case's.
OperatorCall draw_call(const OperatorCase& one, const OperatorGroup& group, at::ScalarType type,
                       std::uint64_t seed);

/// Runs a check into the verdict of an operator.
using CheckOne = std::function<void(const std::string& name,
                                    const std::function<void(OperatorVerdict&)>& check)>;
/// Holds the optimizers' updates and the squares of a norm against their formulas.
void check_updates(const ConformanceRequest& request, at::Device device, const CheckOne& check);

/// Holds every operator of the calling thread's device against the reference, forward and all
/// gradients, and the updates. One verdict per operator, in the order of names.
std::vector<OperatorVerdict> check_operators(const ConformanceRequest& request);

}  // namespace heteroperf
