#pragma once

#include <string>
#include <vector>

#include "runners/schedule/schedule.hpp"
#include "runners/schedule/simulator.hpp"

namespace heteroperf {

/// Chrome's trace event format, which Perfetto and chrome://tracing open; one unit of time is one
/// microsecond. A thread per rank; a complete event per computation and per other instruction that
/// takes time, with args segment, micro_batch, part; a flow from the computation that makes a value
/// to each one on another rank that needs it.
std::string trace_text(const Schedule& schedule, const Timeline& timeline);

/// One thread of a trace: somebody who ran the program of a rank of the schedule.
struct TraceTrack {
  std::string name;
  int rank = 0;                 ///< of the schedule
  std::vector<TimeSpan> spans;  ///< [instruction]; start = end: nothing to show
};
/// As above of several runners per program; flows go between the first track of each rank.
std::string trace_text(const Schedule& schedule, const std::vector<TraceTrack>& tracks);

}  // namespace heteroperf
