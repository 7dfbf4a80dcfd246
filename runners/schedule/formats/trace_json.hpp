#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

/// The source of a trace: a run that was measured, or a simulation.
enum class TraceKind { measured, simulated };
constexpr std::array<const char*, 2> value_names(TraceKind) { return {"measured", "simulated"}; }

/// A trace's word on itself, in its `otherData`. Fields that are empty are left out there.
struct TraceOrigin {
  TraceKind kind = TraceKind::simulated;
  std::string run_id;  ///< the run that was traced, or whose plan was simulated
  std::string host;    ///< the machine on which it was written
  std::string program_version;
};

/// Chrome's trace event format, which Perfetto and chrome://tracing open; one unit of time is one
/// microsecond. A thread per rank; a complete event per computation and per other instruction that
/// takes time, with args segment, micro_batch, part; a flow from the computation that makes a value
/// to each one on another rank that needs it.
std::string trace_text(const Schedule& schedule, const Timeline& timeline,
                       const TraceOrigin& origin);

/// One thread of a trace: somebody who ran the program of a rank of the schedule.
struct TraceTrack {
  std::string name;
  int rank = 0;                 ///< a rank of the schedule
  std::vector<TimeSpan> spans;  ///< [instruction]; one with start = end is not shown
};
/// Does the same for several runners per program; flows go between the first track of each rank.
std::string trace_text(const Schedule& schedule, const std::vector<TraceTrack>& tracks,
                       const TraceOrigin& origin);

/// A piece of a traced step on one lane.
struct LaneSlice {
  std::size_t lane = 0;
  std::int32_t instruction = -1;  ///< index in the rank's program; −1 where it is of none
  TimeSpan span;                  ///< microseconds
};
struct TracedStep {
  std::uint64_t number = 0;
  TimeSpan span;
  std::vector<LaneSlice> slices;
};
/// Somebody who ran the program of a rank of the schedule, for some steps.
struct TracedRank {
  std::string name;
  int rank = 0;  ///< a rank of the schedule
  std::vector<TracedStep> steps;
};
/// Writes a trace of measured steps: a process per rank, in it a thread with the steps and one
/// for each of `lanes`, whose name is also the category (`cat`) of its events. Events of the first
/// lane, which computes, are named by their instructions; all have the arg step.
std::string lanes_trace_text(const Schedule& schedule, const std::vector<TracedRank>& ranks,
                             std::span<const char* const> lanes, const TraceOrigin& origin);

/// Reads the word on itself of a trace that this program wrote. Throws UserError, one problem that
/// begins with `file`, for any other text.
TraceOrigin read_trace_origin(const std::string& text, const std::string& file);

}  // namespace heteroperf
