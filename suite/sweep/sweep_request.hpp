#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "results/sweep/sweep_index.hpp"
#include "suite/config/run_config.hpp"

namespace heteroperf {

/// The options of `run` that make a sweep.
struct SweepRequest {
  std::vector<Setting> settings;  ///< every run has them, one per key
  bool quick = false;
  std::vector<std::string> sweeps;  ///< "ranks=1,2,4", "ranks:micro-batches=1:4,2:2"
  std::int64_t repeats = 1;         ///< runs of each point, with one seed after the other
};

/// The runs of the request: every combination of the axes' values, repeated with seeds of their
/// own. A key is a flag's name without dashes or a configuration key; keys and values joined by
/// colons change together. Throws UserError with everything that is wrong at any point, before
/// anything is run.
SweepIndex plan_sweep(const SweepRequest& request);

/// Words of the command line of one run, after the program's name. `folder`: its --out.
std::vector<std::string> sweep_run_words(const SweepIndex& index, const SweepRun& run,
                                         const std::string& folder);

}  // namespace heteroperf
