#pragma once

#include <memory>
#include <string>
#include <vector>

#include "suite/run/rank_context.hpp"
#include "suite/run/run_recorder.hpp"

namespace heteroperf {

/// One workload of a run, ready to start; the same on every rank.
struct PreparedRun {
  RunConfig config;  ///< effective: what was left to choose is chosen
  Placement placement;
  Workload workload;
  int groups = 0;         ///< of a search; 0: one fixed model on all ranks
  std::string reproduce;  ///< the command line that is this run
};

/// What rank 0 keeps while a workload runs; null on other ranks.
struct FirstRank {
  RunRecorder* recorder = nullptr;
  ProgressLine* progress = nullptr;
};

/// Runs one workload on this rank, from measuring the peak to the last event. Collective over the
/// world. The stop line is left to the caller.
ProgramEnd run_workload(const PreparedRun& run, World& world, Engine& engine, FirstRank first);

}  // namespace heteroperf
