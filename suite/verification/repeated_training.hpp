#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "results/journal/journal.hpp"
#include "runners/engine/engine.hpp"
#include "runners/engine/noise_band.hpp"

namespace heteroperf {

struct PreparedRun;

/// A fault, and the device of the run that has it.
struct FaultOfDevice {
  std::string device;  ///< "emulated:NAME"
  LocatedFault fault;
};

/// The training of a run once more, in this process: on one rank, which takes the samples of all
/// ranks in micro-batches of their size.
class RepeatedTraining {
 public:
  /// `folder` has the run's plan. Throws UserError where its devices are not there any more, and
  /// Error{environment} where its configuration makes another training here.
  RepeatedTraining(const std::filesystem::path& folder, const Journal& journal);
  ~RepeatedTraining();

  /// Trains the first `steps` steps `runs` times with sums in drawn orders, and once in float64,
  /// since roundings that all of those share are noise too.
  NoiseBand band(int runs, std::uint64_t steps) const;
  /// Searches the first `steps` steps for an operator at fault, on each of the run's devices; bands
  /// are those of `runs` drawn orders, with products as `reference` has them. None: every pass is
  /// within its band on all of them.
  std::optional<FaultOfDevice> locate(const RankDevice& reference, int runs,
                                      std::uint64_t steps) const;
  /// The device of the run, of several an emulated chip.
  const RankDevice& device() const;

 private:
  /// Calls body(spec) with the training as the engine takes it.
  template <class Body>
  void with_spec(const Body& body) const;

  std::vector<RankDevice> devices_;  ///< each once
  std::unique_ptr<const PreparedRun> run_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace heteroperf
