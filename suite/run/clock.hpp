#pragma once

#include <cstdint>

namespace heteroperf {

class ControlChannel;

/// Nanoseconds on this process's monotonic clock.
std::int64_t now_ns();

/// What to add to this rank's monotonic clock to get rank 0's: the best of several round trips
/// over the control channel (the shortest bounds the error by half its length).
std::int64_t measure_clock_offset_ns(ControlChannel& control);

}  // namespace heteroperf
