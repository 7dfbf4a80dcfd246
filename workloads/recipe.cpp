#include "workloads/recipe.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "metrics/base/name_table.hpp"

namespace heteroperf {
namespace {

constexpr Named<Precision> precisions[] = {
    {Precision::fp32, "fp32"}, {Precision::bf16, "bf16"}, {Precision::fp64, "fp64"}};
constexpr Named<OptimizerKind> optimizers[] = {{OptimizerKind::sgd, "sgd"},
                                               {OptimizerKind::adamw, "adamw"}};
constexpr Named<LearningRateSchedule> schedules[] = {{LearningRateSchedule::constant, "constant"},
                                                     {LearningRateSchedule::linear, "linear"},
                                                     {LearningRateSchedule::cosine, "cosine"}};

}  // namespace

/// The rate rises linearly over the warm-up, and then follows the schedule to its final share.
double learning_rate_at(const OptimizerRecipe& recipe, std::uint64_t step) {
  const double peak = recipe.learning_rate;
  if (step < recipe.warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(recipe.warmup_steps);
  }
  if (recipe.schedule == LearningRateSchedule::constant ||
      recipe.total_steps <= recipe.warmup_steps) {
    return peak;
  }
  const double span = static_cast<double>(recipe.total_steps - recipe.warmup_steps);
  const double progress = std::min(1.0, static_cast<double>(step - recipe.warmup_steps) / span);
  const double shape = recipe.schedule == LearningRateSchedule::linear
                           ? 1.0 - progress
                           : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return peak * (recipe.final_fraction + (1.0 - recipe.final_fraction) * shape);
}

const char* to_string(Precision precision) { return name_of(precisions, precision); }
const char* to_string(OptimizerKind kind) { return name_of(optimizers, kind); }
const char* to_string(LearningRateSchedule schedule) { return name_of(schedules, schedule); }

Precision parse_precision(const std::string& name) {
  return parse_name(precisions, "precision", name);
}
OptimizerKind parse_optimizer_kind(const std::string& name) {
  return parse_name(optimizers, "optimizer", name);
}
LearningRateSchedule parse_learning_rate_schedule(const std::string& name) {
  return parse_name(schedules, "learning-rate schedule", name);
}

}  // namespace heteroperf
