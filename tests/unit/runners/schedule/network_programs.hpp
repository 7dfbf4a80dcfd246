#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

using Spans = std::vector<TimeSpan>;

/// name_ends() gives it its segment.
Instruction act(Op op, EdgeId edge, MicroBatchId micro_batch, int peer, int group = -1);
Instruction plain(Op op, SegmentId segment = -1);
Segment on_rank(int rank, double forward);
void name_ends(Schedule& schedule);

/// Segments with a forward cost each, on ranks 0, 1, …; 6 bytes on every edge, latency 1.
Schedule forwards(const std::vector<double>& costs,
                  const std::vector<std::pair<SegmentId, SegmentId>>& edges, int micro_batches,
                  std::vector<std::vector<Instruction>> programs);
/// Rank 0 makes `count` micro-batches at 1 each and sends them, rank 1 takes 2 each.
Schedule stream(int count);

SimulationOptions options(NetworkModel model, double bandwidth);
/// Of the model `links`.
SimulationOptions links(double bandwidth);

/// When each message travelled.
Spans transfers(const Timeline& timeline);
/// What simulate() says against it; empty when it runs.
std::string error_of(const Schedule& schedule, const SimulationOptions& how);

}  // namespace heteroperf
