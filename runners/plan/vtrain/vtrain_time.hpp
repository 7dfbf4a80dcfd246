#pragma once

#include <array>
#include <vector>

#include "runners/plan/vtrain/vtrain_rows.hpp"

namespace heteroperf {

/// What an even plan of a GPT is timed by (README.md); all positive.
struct VtrainMachine {
  double rate = 2.2e14;         ///< operations per second of matrix products
  double small_rows = 200;      ///< tokens of a micro-batch at which products take twice as long
  double element_s = 1e-12;     ///< per element that is read and written outside of products
  double launch_s = 2.5e-3;     ///< the least that all passes of a layer take
  double tensor_launch = 1.1;   ///< × launch_s with tensor parallelism
  double sum_latency_s = 2e-5;  ///< of a sum over tensor-parallel ranks, per doubling of them
  double sum_bytes_per_s = 1.5e11;      ///< of it, within a node
  double network_bytes_per_s = 5e10;    ///< between stages, and of sums that leave a node
  double replica_bytes_per_s = 2.5e10;  ///< of the sum over replicas
  double update_s = 2e-11;              ///< per parameter
  double micro_batch_s = 1e-4;          ///< of a stage, per micro-batch
  double step_s = 1e-2;                 ///< of a step
};

using VtrainMember = double VtrainMachine::*;
/// All, in their order.
const std::vector<VtrainMember>& vtrain_members();

/// Seconds of a step under 1F1B with full recomputation.
double vtrain_step_s(const VtrainRow& row, const VtrainMachine& machine);

/// Least mean |ln(modelled / measured)| over the rows, with a penalty for leaving `start`, by
/// pattern search (Hooke & Jeeves 1961) over `free` members. Deterministic.
VtrainMachine calibrate_vtrain(const std::vector<VtrainRow>& rows, const VtrainMachine& start,
                               const std::vector<VtrainMember>& free);

/// Mean |modelled / measured − 1|.
double vtrain_error(const std::vector<VtrainRow>& rows, const VtrainMachine& machine);

/// Of rows: every n-th from the first, and the others.
struct VtrainSplit {
  std::vector<VtrainRow> calibration, rest;
};
VtrainSplit split_rows(const std::vector<VtrainRow>& rows, std::size_t every);

}  // namespace heteroperf
