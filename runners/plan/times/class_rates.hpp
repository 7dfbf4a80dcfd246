#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// The extents that an efficiency entry's shape has for a pass (README.md, Measured operations).
class WorkShape {
 public:
  static constexpr std::size_t most_extents = 8;

  WorkShape() = default;
  explicit WorkShape(const std::vector<double>& extents);
  /// "4x128x256"; empty where nothing is known.
  std::string text() const;
  /// The distance of two shapes: Σ |ln(a_i / b_i)|, of the products where they have different
  /// numbers of extents. Largest where one of them is empty.
  double distance(const WorkShape& other) const;
  double size() const;  ///< the product; 0 where nothing is known
  bool empty() const { return count_ == 0; }
  friend bool operator==(const WorkShape&, const WorkShape&) = default;

 private:
  std::array<double, most_extents> extents_{};
  std::size_t count_ = 0;
};

/// The passes of a training step.
enum class TrainingPass { forward, input_gradient, weight_gradient };
inline constexpr std::array training_passes{TrainingPass::forward, TrainingPass::input_gradient,
                                            TrainingPass::weight_gradient};
constexpr std::array<const char*, 3> value_names(TrainingPass) {
  return {"forward", "input_gradient", "weight_gradient"};
}
/// The name of an efficiency entry of one pass of an operation: "gemm+gelu/forward".
std::string measured_operation(const std::string& operation, TrainingPass pass);
/// The same of an optimizer: "optimizer/adamw", bytes of README.md's convention per second.
std::string optimizer_operation(OptimizerKind optimizer);

/// The work that one pass of an operator gives a device.
struct PassWork {
  double operations = 0, bytes = 0;
  /// A matrix product has rows, columns and a summed extent; 0 where the pass is none.
  std::array<double, 3> extents{};
  WorkShape shape = {};
  bool any() const { return operations > 0 || bytes > 0; }
  /// The units that a rate of one pass counts: strict operations, or bytes where it has none.
  double units() const { return operations > 0 ? operations : bytes; }
};

/// Notes the classes of the first `ranks` ranks that have no rate for the precision.
void note_missing_rates(const Cluster& cluster, std::size_t ranks, Precision precision,
                        ProblemList& problems);

/// The rates that a cluster's device classes achieve, as its efficiency entries say. Beside rates
/// of operations: `memory` (bytes per second), `launch` (operators started per second), `gemm_tile`
/// (shape rows x columns x summed: products are done in whole tiles, at that rate), those of one
/// pass, named by measured_operation() (PassWork::units() per second), and of optimizers.
/// Keeps what it has worked out, so it is not for several threads.
class ClassRates {
 public:
  /// The cluster outlives it.
  ClassRates(const Cluster& cluster, Precision precision)
      : cluster_(cluster), precision_(to_string(precision)) {}

  /// Null where the class has none for the precision.
  const OpsPerSecond* rate(const std::string& name) const;
  /// Bytes of an optimizer's convention (README.md, Times) per second: of the entry of that
  /// optimizer, else of the memory.
  /// Requires a class with a rate, as the others below. A class that says nothing of its memory
  /// moves a byte while it does 4 operations: more than any chip known, so that nothing is free.
  double optimizer_bytes_per_s(const std::string& name, OptimizerKind optimizer) const;

  /// Roofline (Williams, Waterman & Patterson 2009) and the time to start it:
  /// max(operations / rate, bytes / memory bandwidth) + 1 / launches per second. 0 for no work.
  double pass_s(const std::string& name, const char* operation, const PassWork& work) const;

  /// The time by an entry of this very pass, all included: units / the rate of the nearest shape.
  struct Measured {
    double seconds = 0;
    bool same_shape = false;
    const Efficiency* entry = nullptr;
  };
  /// Nothing without an entry. `operation` is a measured_operation().
  std::optional<Measured> measured(const std::string& name, const std::string& operation,
                                   const PassWork& work) const;

 private:
  struct Entry {
    WorkShape shape;
    double rate = 0;
    const Efficiency* source = nullptr;
  };
  using Entries = std::vector<Entry>;
  /// A class as pass_s() asks for it.
  struct Sheet {
    std::string name;
    double rate = 0, bytes_per_s = 0, launch_s = 0;
    std::array<double, 3> tile{};  ///< 0: none
    double tile_rate = 0;
    std::map<std::string, Entries, std::less<>> operations = {};
  };
  const Sheet& sheet(const std::string& name) const;
  Sheet make_sheet(const std::string& name) const;
  static double compute_s(const Sheet& sheet, const char* operation, const PassWork& work);

  const Cluster& cluster_;
  std::string precision_;
  mutable std::vector<Sheet> sheets_;
};

}  // namespace heteroperf
