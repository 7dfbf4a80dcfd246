#pragma once

#include <cstdint>

namespace heteroperf {

/// From the operating system: for tokens and names that nobody else may guess or hit, never for
/// results (those have metrics/random.hpp). Throws SystemError.
std::uint64_t unpredictable_bits();

}  // namespace heteroperf
