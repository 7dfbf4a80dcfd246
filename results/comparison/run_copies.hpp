#pragma once

#include "results/comparison/run_set.hpp"

namespace heteroperf {

/// Leaves one record of each run_id: the first that its journal confirms, else the first without a
/// journal, else the first. Of the others those that a journal contradicts, or that have another
/// content, move to `skipped`.
void set_copies_aside(RunSet& found);

}  // namespace heteroperf
