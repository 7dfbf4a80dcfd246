#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "results/gate/gate_report.hpp"

namespace heteroperf {

/// A gate that starts its runs itself.
struct GateCommands {
  std::string base, head;     ///< for /bin/sh
  std::filesystem::path out;  ///< a new folder; every run gets one in it, as HETEROPERF_OUT
  double deadline_s = 3600;   ///< of one run
};

/// Says what is going on, a line each; may be empty.
using GateProgress = std::function<void(const std::string& line)>;

/// One run of each program that does not count (it loads files into caches, and shows whether the
/// two can be compared), then blocks of base, head, head, base until the verdict is settled (an
/// exact regression that is certain settles it after any block) or `rules` allow no more. The
/// report's error, with what the whole blocks before it say, is Error{run_failed} where a command
/// fails, {timeout} at its deadline, {environment} where it leaves no record or that of an earlier
/// run, {verification} where that is not what its journal gives, {invalid_result},
/// {not_comparable}, {interrupted}.
GateReport run_gate(const GateCommands& commands, const GateRules& rules,
                    const GateProgress& progress);

}  // namespace heteroperf
