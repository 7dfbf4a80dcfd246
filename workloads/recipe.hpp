#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "metrics/base/name_table.hpp"

namespace heteroperf {

/// The number format of weights and activations.
enum class Precision { fp32, bf16, fp64 };
constexpr std::array<const char*, 3> value_names(Precision) { return {"fp32", "bf16", "fp64"}; }

enum class OptimizerKind { sgd, adamw };
constexpr std::array<const char*, 2> value_names(OptimizerKind) { return {"sgd", "adamw"}; }

/// The course of the learning rate after the warm-up, which is linear from 0 over `warmup_steps`.
enum class LearningRateSchedule { constant, linear, cosine };
constexpr std::array<const char*, 3> value_names(LearningRateSchedule) {
  return {"constant", "linear", "cosine"};
}

/// The optimizer and its schedule, the same on every rank.
struct OptimizerRecipe {
  OptimizerKind kind = OptimizerKind::adamw;
  double learning_rate = 1e-3;
  double momentum = 0.9;       ///< for sgd only
  double weight_decay = 0.01;  ///< sgd adds it to the gradient; adamw decouples it
  /// Leaves biases, norms and other one-dimensional tensors out of the decay.
  bool decay_matrices_only = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< for adamw only
  LearningRateSchedule schedule = LearningRateSchedule::constant;
  std::uint64_t warmup_steps = 0;
  std::uint64_t total_steps = 0;  ///< end of linear and cosine; 0 (a run by time) means constant
  double final_fraction = 0.0;    ///< share of learning_rate that is reached at total_steps
  double clip_norm = 0.0;         ///< largest global gradient norm; 0 means no clipping

  friend bool operator==(const OptimizerRecipe&, const OptimizerRecipe&) = default;
};

/// A caller's wishes for a recipe; what is absent keeps the workload's own.
struct OptimizerRequest {
  std::optional<OptimizerKind> name;
  std::optional<LearningRateSchedule> schedule;
  std::optional<double> learning_rate;
  std::optional<double> weight_decay;
  std::optional<double> clip_norm;  ///< 0: no clipping
  std::optional<std::int64_t> warmup_steps;
};

/// Returns the learning rate of step `step`, counted from 0.
double learning_rate_at(const OptimizerRecipe& recipe, std::uint64_t step);

/// Throws UserError naming the nearest valid name.
Precision parse_precision(const std::string& name);

}  // namespace heteroperf
