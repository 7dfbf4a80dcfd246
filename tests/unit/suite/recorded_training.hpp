#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {

/// A journal of one model that `resume` and `align` accept: 32 steps of 64 samples on two ranks.
SampleRun recorded_training();

/// Writes the journal alone.
RunFiles write_run(const SampleRun& run, const std::filesystem::path& folder);

/// A checkpoint of one parameter, one buffer and one optimizer state of the run's model.
void save_parameters(const SampleRun& run, const std::filesystem::path& run_folder,
                     std::uint64_t step, const std::vector<float>& weights);

/// What an Error of this kind says; else "nothing was thrown".
template <class Thrown, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace heteroperf
