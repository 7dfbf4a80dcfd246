#pragma once

#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {

/// Completes and changes the opening lines of a run that was never run, so that they agree with
/// its `start`, `scale` and `workload` lines and with its steps: configuration, binding, plan and
/// the workload's own settings. A plan's summary "pp 2 x tp 1 x dp 1" asks for these degrees. There
/// are as many ranks, with lines of their own, as devices; and as many samples in every step as
/// the workload says. What agrees already stays as it is; a run without a workload stays too.
void make_agree(SampleRun& run);

/// Adds what a complete run's ranks have said and this one's have not: their places in the plan,
/// their times of the measured steps, and the checksums of trials. For a run that agrees.
void add_due_lines(SampleRun& run);

}  // namespace heteroperf
