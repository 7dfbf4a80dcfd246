#pragma once

#include <vector>

#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/network.hpp"

namespace heteroperf {

struct TimeSpan {
  double start = 0, end = 0;
  friend bool operator==(const TimeSpan&, const TimeSpan&) = default;
};

/// When everything happened.
struct Timeline {
  std::vector<std::vector<TimeSpan>> spans;  ///< [rank][instruction]
  /// What an instruction waited for last: the instruction whose end (plus latency) is its start; −1
  /// rank where it started at once. Follow it from the last end to get the critical path.
  struct Cause {
    std::int32_t rank = -1, index = -1;
  };
  std::vector<std::vector<Cause>> causes;  ///< [rank][instruction]
  /// Where an instruction spans a wait: since when, within its span, the message or collective it
  /// waits for was under way; else its start. Empty under `latency`.
  std::vector<std::vector<double>> under_way;  ///< [rank][instruction]
  struct Transfer {
    std::int32_t rank = -1, index = -1;  ///< of the send
    double issued = 0;                   ///< ready to start, but for links and cards
    double start = 0, end = 0;           ///< it arrives the graph's latency after that
  };
  std::vector<Transfer> transfers;  ///< by rank and index; empty under `latency`
};

struct SimulationOptions {
  NetworkModel model = NetworkModel::latency;
  Network network;
};

/// What a compute instruction takes alone; 0 for others.
double compute_time(const PipelineGraph& graph, const Instruction& instruction);

/// Runs the programs on a virtual clock; cost linear in instructions. A fused pair starts when the
/// inputs of both are there. The models other than `latency` need a lowered schedule.
/// Throws UserError with the waiting cycle, rank by rank, where the programs cannot end.
Timeline simulate(const Schedule& schedule, const SimulationOptions& options = {});

}  // namespace heteroperf
