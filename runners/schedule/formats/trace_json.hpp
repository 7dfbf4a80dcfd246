#pragma once

#include <string>

#include "runners/schedule/schedule.hpp"
#include "runners/schedule/simulator.hpp"

namespace heteroperf {

/// Chrome's trace event format, which Perfetto and chrome://tracing open; one unit of time is one
/// microsecond. A thread per rank; a complete event per computation and per other instruction that
/// takes time, with args segment, micro_batch, part; a flow from the computation that makes a value
/// to each one on another rank that needs it.
std::string trace_text(const Schedule& schedule, const Timeline& timeline);

}  // namespace heteroperf
