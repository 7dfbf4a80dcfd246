#pragma once

#include "runners/engine/training.hpp"

namespace heteroperf {

/// Throws UserError with every reason why `spec` cannot run on `ranks` ranks: counts out of range,
/// nodes without an operator or without a way to the loss, data that do not fit the graph, fewer
/// samples than ranks.
void check_training_spec(const TrainingSpec& spec, int ranks);

}  // namespace heteroperf
