#pragma once

#include <string>

#include "results/comparison/run_digest.hpp"

namespace heteroperf {

/// "2 x cpu + 1 x cuda": the run's devices by class; `times` stands between count and class.
std::string devices_text(const RunDigest& run, const std::string& times);

}  // namespace heteroperf
