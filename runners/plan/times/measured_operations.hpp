#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runners/cluster/efficiency_matrix.hpp"
#include "runners/plan/times/stage_work.hpp"

namespace heteroperf {

/// The operations of a model as one stage, each once: a probe measures these.
struct ModelOperations {
  std::vector<FusedWork> operations;  ///< in the order in which they run
  /// By node: of the last node of an operation, that of the alike one in `operations`.
  std::vector<NodeId> measured_as;
};
ModelOperations model_operations(const ModelGraph& graph, Precision precision);

/// Seconds of one micro-batch; 0: there is no such pass.
struct OperationSeconds {
  double forward_s = 0;
  double input_gradient_s = 0, weight_gradient_s = 0;  ///< apart
  double backward_s = 0;                               ///< both at once, as most schedules run them
  int repetitions = 0;
};

/// Who measured, and what.
struct ProbeSource {
  std::string device_class, machine, date;  ///< "2026-11-22T03:14:00Z"
  std::string workload;                     ///< "llm micro"
};

/// Adds an entry for each pass of each operation, as a probe's. Input and weight gradients share
/// `backward_s` in the ratio of their own times. `seconds` has one for each operation; those with
/// no repetitions are passed over. Throws UserError naming every time that is not positive and
/// finite.
void add_measured(const ModelOperations& model, std::int64_t samples, Precision precision,
                  const std::vector<OperationSeconds>& seconds, const ProbeSource& source,
                  EfficiencyMatrix& matrix);

/// An optimizer's entry, from the seconds of an update of `elements` parameters. Throws as above.
void add_measured_optimizer(OptimizerKind optimizer, std::int64_t elements, Precision precision,
                            double seconds, const ProbeSource& source, EfficiencyMatrix& matrix);

}  // namespace heteroperf
