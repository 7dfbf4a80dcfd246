#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "results/gate/gate_report.hpp"
#include "suite/gate/gate_runs.hpp"

namespace heteroperf {

/// The way in which the runs of a gate lie beside one another.
enum class GateMode {
  blocks,    ///< whole runs: base, head, head, base
  lockstep,  ///< both programs alive at once, by turns; blocks where a program cannot
};

/// Fewer fresh processes cannot tell their luck from a change.
inline constexpr std::size_t fewest_lockstep_pairs = 6;

/// A gate that starts its runs itself.
struct GateCommands {
  std::string base, head;     ///< for /bin/sh
  std::filesystem::path out;  ///< a new folder; every run gets one in it, as HETEROPERF_OUT
  double deadline_s = 3600;   ///< limit of one run
  GateMode mode = GateMode::blocks;
  double pair_s = 10;          ///< for how long a pair in lockstep moves by turns
  double turn_timeout_s = 60;  ///< limit of one turn
  std::uint64_t seed = 1;      ///< draws the orders in lockstep
};

/// One run of each program that does not count (it loads files into caches, and shows whether the
/// two can be compared), then blocks of base, head, head, base, or pairs in lockstep, until the
/// verdict is settled (an exact regression that is certain settles it after any block) or `rules`
/// allow no more. The
/// report's error, with what the whole blocks before it say, is Error{run_failed} where a command
/// fails, {timeout} at its deadline, {environment} where it leaves no record or that of an earlier
/// run, {verification} where that is not what its journal gives, {invalid_result},
/// {not_comparable}, {interrupted}.
GateReport run_gate(const GateCommands& commands, const GateRules& rules,
                    const GateProgress& progress);

}  // namespace heteroperf
