#pragma once

#include "suite/ranks/rank_context.hpp"
#include "suite/run/prepared_run.hpp"
#include "suite/run/run_recorder.hpp"
#include "suite/training/turn_taker.hpp"

namespace heteroperf {

/// Things that rank 0 keeps while a workload runs; all null on other ranks.
struct FirstRank {
  RunRecorder* recorder = nullptr;
  ProgressLine* progress = nullptr;
  TurnTaker* turns = nullptr;  ///< null unless the run is in lockstep
};

/// Runs one workload on this rank, from measuring the peak to the last event. Collective over the
/// world. The stop line is left to the caller.
ProgramEnd run_workload(const PreparedRun& run, World& world, Engine& engine, FirstRank first);

}  // namespace heteroperf
