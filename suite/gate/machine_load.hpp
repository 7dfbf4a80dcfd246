#pragma once

#include <optional>

namespace heteroperf {

/// Cores that were busy over the next `seconds`, whoever used them; nothing where the system does
/// not say.
std::optional<double> busy_cores(double seconds);

/// Waits until at most `share` of the `cores` is busy, `patience_s` at the longest, and returns
/// what it saw last. This process sleeps meanwhile.
std::optional<double> wait_for_quiet(int cores, double share, double patience_s);

}  // namespace heteroperf
