#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/engine/engine.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// "2026-11-22T03:14:00Z", now: entries of an efficiency matrix say when they were measured.
std::string utc_now();

/// Whose operations `probe` measures, and for how long.
struct OperationsRequest {
  std::vector<std::string> workloads;   ///< names of the catalog; empty: every training
  std::string size, model;              ///< empty: what the scaling rule chooses for the machine
  std::vector<std::string> precisions;  ///< empty: fp32, and bf16 where the devices have it
  std::vector<std::int64_t> micro_batches;  ///< empty: 1, 4, 16, … and the workload's own
  double seconds_each = 0.05;               ///< for an operation, about
  double time_limit_s = 60;                 ///< for all together
  int threads = 1;

  /// Adds everything that cannot be asked.
  void check(ProblemList& problems) const;
};

/// The operations of a workload at a micro-batch, for the calling thread's device. `model` has the
/// workload's operations and must outlive it, as the workload must.
OperationProbe operation_probe(const Workload& workload, const ModelOperations& model,
                               std::int64_t samples, int threads);

using BeforeModel = std::function<void(const std::string& name, double done)>;

/// Measures on all ranks at once and puts the medians of every class's devices among the
/// efficiency entries of `cluster`, whose classes and rates are known. Collective; the same result
/// on all ranks. `before_model` hears, on every rank, what comes next and the share of all that is
/// done; it is collective and may throw. Returns what was left out and why.
/// Throws UserError where a model's operations do not fit a device.
std::vector<std::string> measure_operations_of(const OperationsRequest& request,
                                               Communicator& world, Engine& engine,
                                               const std::string& date, const std::string& machine,
                                               const BeforeModel& before_model, Cluster& cluster);

/// Bytes per second of every rank's host memory, all ranks at once, as the classes' `memory`
/// entries. `hosts` by rank. Collective; the same result on all ranks: why a host's memory was not
/// measured, empty where all were. A class without a measured rank has no entry.
std::string measure_memory_of(Communicator& world, const std::vector<std::string>& hosts,
                              int threads, double seconds, const std::string& date,
                              const std::string& machine, Cluster& cluster);

}  // namespace heteroperf
