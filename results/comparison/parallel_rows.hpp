#pragma once

#include <cstddef>
#include <functional>

namespace heteroperf {

/// Calls `work(i)` for every i below `count`, on as many threads as there are cores (8 at most).
/// The calls must not touch the same data. Rethrows the first exception once all have ended.
void in_parallel(std::size_t count, const std::function<void(std::size_t i)>& work);

}  // namespace heteroperf
