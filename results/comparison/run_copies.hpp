#pragma once

#include "results/comparison/run_set.hpp"

namespace heteroperf {

/// Leaves one record of each run_id: the first that its journal confirms, else the first without a
/// journal, else the first. Another record moves to `skipped` where its journal contradicts it or
/// its content differs.
void set_copies_aside(RunSet& found);

}  // namespace heteroperf
