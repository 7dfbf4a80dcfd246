#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "results/text/document.hpp"
#include "runners/engine/noise_band.hpp"
#include "suite/verification/repeated_training.hpp"

namespace heteroperf {

/// The rule by which two trainings count as aligned: the mean over the common steps of |loss_a −
/// loss_b| / |loss_b| is at most `limit` (1.5 % is the acceptance reported for H2,
/// arXiv:2505.17548, across unlike chips). A loss that is not finite in either run is beyond every
/// limit.
struct AcceptanceRule {
  static constexpr const char* text =
      "mean over steps of |loss_a - loss_b| / |loss_b|, every loss finite";
  double limit = 0.015;
};

/// Asks that the training be repeated here, to hold the losses of its first steps to the noise of
/// rounding.
struct NoiseRequest {
  int runs = fewest_band_runs;  ///< with sums in drawn orders
  std::uint64_t steps = 20;     ///< at most; as many as both runs have
  bool locate = false;          ///< also find the operator, where the losses part
  bool by_limit = false;        ///< the rule decides in place of the band
};

/// One step that both runs have.
struct AlignedStep {
  std::uint64_t n = 0;
  double loss_a = 0, loss_b = 0;
  double relative = 0;  ///< |a − b| / |b|; 0 for equal ones; infinite where one is not finite
  double gradient_norm_relative = 0;
};

/// One tensor of the two checkpoints.
struct AlignedParameter {
  std::string name;
  double max_relative = 0;  ///< max|a − b| / max|b|
};

/// The distance of two runs of one training; B is the reference.
struct Alignment {
  std::string run_a, run_b;  ///< run_id
  AcceptanceRule rule;
  std::vector<AlignedStep> steps;
  double mean_relative = 0, max_relative = 0;
  double gradient_norm_max_relative = 0;
  std::optional<std::uint64_t> parameter_step;  ///< step of the two checkpoints compared
  std::vector<AlignedParameter> parameters;     ///< and buffers, by name
  std::string parameters_missing;               ///< why none were compared
  std::optional<NoiseBand> band;                ///< decides in place of the rule where there is one
  std::uint64_t held_steps = 0;                 ///< the first steps, which the band holds
  std::optional<std::uint64_t> parted_step;     ///< the first whose losses are further apart
  bool searched = false;                        ///< for an operator at fault
  std::optional<FaultOfDevice> located;
  std::vector<std::string> warnings;

  bool ok() const;
  /// With a band: the step that decides, which is the first parted one, else the last that is held.
  std::uint64_t told_step() const { return parted_step.value_or(held_steps - 1); }
};

/// Compares two run folders. Throws Error{not_comparable} with every field of the training that
/// differs (the precision may), and where they have no step in common; UserError for what is no run
/// of one model. With `noise` the training is repeated, as RepeatedTraining says.
Alignment align_runs(const std::filesystem::path& a, const std::filesystem::path& b,
                     const AcceptanceRule& rule,
                     const std::optional<NoiseRequest>& noise = std::nullopt);

/// The answer of `align`; people see the steps and the parameters furthest apart.
Document alignment_document(const Alignment& alignment);

}  // namespace heteroperf
