#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace heteroperf {

/// A number, or its decimal digits as text where a reader's double would round it.
inline nlohmann::ordered_json whole_number_json(std::uint64_t value) {
  constexpr std::uint64_t largest_exact = std::uint64_t{1} << 53;
  if (value > largest_exact) return std::to_string(value);
  return value;
}

}  // namespace heteroperf
