#pragma once

#include <optional>

#include "runners/schedule/check/program_index.hpp"

namespace heteroperf {

/// V7, first half: no rank's memory (MemoryPeaks::memory) rises above the limit.
void check_memory(const Schedule& schedule, std::optional<double> limit, Findings& findings);

/// V7, second half: every value of ValueIndex lies in the buffer that its maker and its users name,
/// no buffer is filled while it holds another value or read when it does not hold this one, and
/// each is freed once. Of executable schedules only.
void check_buffers(const ProgramIndex& index, Findings& findings);

}  // namespace heteroperf
