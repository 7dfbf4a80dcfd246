#pragma once

#include <string>
#include <vector>

#include "runners/comm/world.hpp"

namespace heteroperf {

/// The result of a check; only `fail` makes a run impossible.
enum class CheckStatus { ok, warn, fail };

/// One thing `doctor` looked at.
struct DoctorCheck {
  std::string name;
  CheckStatus status = CheckStatus::ok;
  std::string found, need, hint;
};

/// Optional parts of the program: mpi, nccl, cuda, hdf5.
using Backends = std::vector<std::pair<std::string, BackendStatus>>;
Backends find_backends();

struct DoctorReport {
  std::vector<DoctorCheck> checks;
  Backends backends;

  /// A run is impossible when a check failed.
  bool run_possible() const;
};

/// "ok", "warn" or "fail".
const char* to_string(CheckStatus status);
/// The document of `doctor`, one object per check and per optional part.
std::string doctor_json_text(const DoctorReport& report);
/// The document of `version`: program, commit, build, parts, formats.
std::string version_json_text(const Backends& parts);

}  // namespace heteroperf
