#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "suite/sweep/sweep_session.hpp"

namespace heteroperf {

/// Everything that a tuning may choose from.
struct TuningSpace {
  int cores = 1;  ///< threads that can compute at once
  /// Ranks that take a micro-batch together: positions times tensor degree, or a search's group.
  int ranks_of_replica = 1;
  std::int64_t micro_batch = 1;  ///< the run's own
  std::int64_t samples = 1;      ///< per step of all replicas, of a search of one group; stays
  bool search = false;
  /// The user has fixed these; 0: open.
  int ranks = 0, threads = 0;
  std::int64_t fixed_micro_batch = 0, fixed_micro_batches = 0;
};

/// One choice of a tuning.
struct TuningChoice {
  int ranks = 1, threads = 1;  ///< threads: each rank's
  std::int64_t micro_batch = 1, micro_batches = 1;
  friend bool operator==(const TuningChoice&, const TuningChoice&) = default;
};

/// Every choice that gives each core to one rank, or as many cores as ranks of whole replicas can
/// use, with micro-batches from a quarter of the run's own to four times that, and leaves the
/// samples of a step as they are.
std::vector<TuningChoice> tuning_choices(const TuningSpace& space);

/// The number of configurations in each round: half of those before, three in the last one,
/// two rounds at least.
std::vector<std::size_t> halving_rounds(std::size_t configurations);

/// Finds the fastest of the choices, times those of the request's axes, within about `seconds`, and
/// prints the best three with the best one's command. The runs are short ones in a folder of their
/// own: no result. Throws UserError where the request fixes all, where nothing can be tried, or
/// where the seconds are too few for two rounds.
ExitCode launch_tuning(const SweepRequest& request, double seconds, const GlobalOptions& options);

}  // namespace heteroperf
