#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runners/cluster/link_curve.hpp"
#include "runners/plan/plan.hpp"

namespace heteroperf {

/// Factor that leaves room for the last digits of sums.
inline constexpr double sum_slack = 1 + 1e-9;

/// All divisors of a number, ascending.
template <class Number>
std::vector<Number> divisors(Number number) {
  std::vector<Number> list;
  for (Number d = 1; d * d <= number; ++d) {
    if (number % d == 0) list.push_back(d);
  }
  for (std::size_t i = list.size(); i-- > 0;) {
    if (list[i] * list[i] != number) list.push_back(number / list[i]);
  }
  return list;
}

/// The seconds of one layer for one micro-batch, sums within a tensor-parallel group
/// included.
struct LayerTimes {
  double forward_s = 0, input_gradient_s = 0, weight_gradient_s = 0;
  double attention_s = 0;  ///< the part of F that selective recomputation does again
  double total() const { return forward_s + input_gradient_s + weight_gradient_s; }
};

/// The bytes that one layer holds of one micro-batch, by Recomputation. Under `full` a stage keeps
/// the input of its first layer alone, until its backward pass holds what `none` holds.
struct LayerBytes {
  std::array<double, 3> kept{};   ///< from F to B
  std::array<double, 3> split{};  ///< from B to W, where a schedule parts them
  std::array<double, 3> extra{};  ///< at most during a pass, beside what is kept
};

/// Devices that are alike in all that a planner knows.
struct DevicePool {
  std::string name;  ///< unique
  std::string device_class;
  int devices = 0;
  int devices_per_node = 0;   ///< tensor-parallel groups stay within a node
  double memory_bytes = 0;    ///< one device's limit; 0: not limited
  double optimizer_rate = 0;  ///< bytes per second of the optimizer's passes; 0: takes no time
  /// [degree index][micro-batch − 1][layer]; an empty list: that combination is not known and not
  /// used.
  std::vector<std::vector<std::vector<LayerTimes>>> times;
};

/// All that the search for a plan is told: a chain of layers, pools of devices, links between them.
/// Tables are indexed by position: a degree's index is not the degree, and entry m of a list by
/// micro-batch is for m + 1 samples. The search takes the tables as they are; check_problem() is
/// called before it.
struct PlanningProblem {
  int layers = 0;
  std::vector<DevicePool> pools;
  std::vector<int> degrees;  ///< tensor-parallel degrees, ascending, the first is 1
  /// [degree index][micro-batch − 1][layer]
  std::vector<std::vector<std::vector<LayerBytes>>> bytes;
  /// [degree index][layer]: elements in training that one rank holds; of a tied table the first
  /// layer's.
  std::vector<std::vector<double>> parameters;
  /// The same for the bytes of frozen weights; empty: there are none.
  std::vector<std::vector<double>> frozen_bytes;
  /// [degree index]: elements that one rank holds of a table that first and last layer share (a
  /// tied head); empty: none.
  std::vector<double> tied_parameters;
  /// [layer][wire format], by layer before the cut: bytes per sample of what crosses, and of its
  /// gradient.
  std::vector<std::array<double, 3>> activation_bytes, gradient_bytes;
  /// [pool][pool]: between any two of their devices.
  std::vector<std::vector<LinkCurve>> links;

  double weight_bytes = 8;        ///< per element: weights, gradients, master copies
  double optimizer_bytes = 8;     ///< per element: what ZeRO-1 spreads
  double master_bytes = 4;        ///< per element: what is summed over replicas
  std::int64_t batch = 1;         ///< samples of a step
  std::int64_t most_samples = 0;  ///< in a replica's micro-batch: the tables' extent

  int devices() const;
  /// Tensor-parallel groups that so many devices of a pool make, in whole nodes and one part.
  int groups_of(int pool, int count, int degree) const {
    const int per_node = pools[pool].devices_per_node;
    return count / per_node * (per_node / degree) + count % per_node / degree;
  }
  /// [pool][layers before]: device-seconds of a sample of these layers, each at its best degree and
  /// micro-batch; infinite from a layer without times on.
  std::vector<std::vector<double>> least_device_seconds() const;
};

/// Throws UserError with everything wrong: no devices, layers or batch, a time, size or link that
/// is negative or not finite, tables of other extents, a pair of pools without a link.
void check_problem(const PlanningProblem& problem);

}  // namespace heteroperf
