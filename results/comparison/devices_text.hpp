#pragma once

#include <string>

#include "results/comparison/run_digest.hpp"

namespace heteroperf {

/// "2 x cpu + 1 x cuda (1 x NVIDIA H200)": the run's devices by class, and the models of GPUs that
/// the classes do not say; `times` stands between count and class.
std::string devices_text(const RunDigest& run, const std::string& times);

}  // namespace heteroperf
