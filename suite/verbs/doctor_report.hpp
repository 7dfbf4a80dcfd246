#pragma once

#include <string>
#include <vector>

#include "runners/comm/world.hpp"

namespace heteroperf {

enum class CheckStatus { ok, warn, fail };

/// One thing `doctor` looked at.
struct DoctorCheck {
  std::string name;
  CheckStatus status = CheckStatus::ok;
  std::string found, need, hint;
};

struct DoctorReport {
  std::vector<DoctorCheck> checks;
  std::vector<std::pair<std::string, BackendStatus>> backends;  ///< mpi, nccl, cuda, hdf5

  /// A run is impossible when a check failed.
  bool run_possible() const;
};

const char* to_string(CheckStatus status);
std::string doctor_json_text(const DoctorReport& report);

}  // namespace heteroperf
