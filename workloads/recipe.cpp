#include "workloads/recipe.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace heteroperf {
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

Precision parse_precision(const std::string& name) {
  return parse_value_name<Precision>("precision", name);
}

}  // namespace heteroperf
