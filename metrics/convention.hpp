#pragma once

#include <array>
#include <string>

namespace heteroperf {

/// Which rule an operation count follows. Counts of different conventions never mix.
enum class Convention { strict, aiperf, mac, palm, megatron_full, megatron_causal };

inline constexpr std::array all_conventions{Convention::strict,        Convention::aiperf,
                                            Convention::mac,           Convention::palm,
                                            Convention::megatron_full, Convention::megatron_causal};

/// The name in files and options: "strict", …, "megatron-full", "megatron-causal".
const char* to_string(Convention convention);
/// One line: what it counts, and for which models.
const char* description(Convention convention);
/// Throws UserError naming the nearest convention.
Convention parse_convention(const std::string& name);

}  // namespace heteroperf
