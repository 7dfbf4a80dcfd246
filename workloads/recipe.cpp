#include "workloads/recipe.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

template <class Enum>
using NameTable = std::vector<std::pair<Enum, const char*>>;

const NameTable<Precision> precisions{
    {Precision::fp32, "fp32"}, {Precision::bf16, "bf16"}, {Precision::fp64, "fp64"}};
const NameTable<OptimizerKind> optimizers{{OptimizerKind::sgd, "sgd"},
                                          {OptimizerKind::adamw, "adamw"}};
const NameTable<LearningRateSchedule> schedules{{LearningRateSchedule::constant, "constant"},
                                                {LearningRateSchedule::linear, "linear"},
                                                {LearningRateSchedule::cosine, "cosine"}};

template <class Enum>
const char* name_of(const NameTable<Enum>& table, Enum value) {
  return table[static_cast<std::size_t>(value)].second;
}

template <class Enum>
Enum parse(const NameTable<Enum>& table, const std::string& what, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [value, text] : table) {
    if (name == text) return value;
    names.emplace_back(text);
  }
  const std::string nearest = nearest_name(name, names);
  std::string all;
  for (const std::string& text : names) all += (all.empty() ? "" : ", ") + text;
  throw UserError("unknown " + what + " '" + name + "'", "one of " + all,
                  nearest.empty() ? "" : "Did you mean '" + nearest + "'?");
}

}  // namespace

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

Precision parse_precision(const std::string& name) { return parse(precisions, "precision", name); }
OptimizerKind parse_optimizer_kind(const std::string& name) {
  return parse(optimizers, "optimizer", name);
}
LearningRateSchedule parse_learning_rate_schedule(const std::string& name) {
  return parse(schedules, "learning-rate schedule", name);
}

}  // namespace heteroperf
