#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "results/sweep/sweep_index.hpp"

namespace heteroperf {

/// Words of the command line of one run, after the program's name. `folder`: its --out.
std::vector<std::string> sweep_run_words(const SweepIndex& index, const SweepRun& run,
                                         const std::string& folder);

/// What such words say. Which of the settings are the sweep's point they do not say: the last ones.
struct SweepRunWords {
  std::vector<std::string> before;  ///< "run", perhaps "--quick"
  SweepPoint settings;
  std::uint64_t seed = 0;
  std::string folder;
};
/// `argv` as of a process, with the program's name; nothing where no sweep started it.
std::optional<SweepRunWords> read_sweep_run_words(const std::vector<std::string>& argv);
/// The sweep's own words where its command has the first `count` of the settings.
std::vector<std::string> command_of(const SweepRunWords& words, std::size_t count);

}  // namespace heteroperf
