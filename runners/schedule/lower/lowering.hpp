#pragma once

#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// Adds to a compute-only schedule what its execution needs: LOAD before a source's forward, sends
/// right after what they carry is produced, receives as late as they may stand without blocking
/// anybody (in the order of their channel), one group for messages that cross, buffers and FREE,
/// LOSS, reductions after the last gradient of the weights, steps.
/// The result is deterministic and passes check_schedule() at level rendezvous; the cost is linear
/// in instructions. Throws UserError where the compute order itself cannot run.
Schedule lower(const Schedule& compute_only);

/// Drops everything that lower() adds.
Schedule compute_only(const Schedule& schedule);

}  // namespace heteroperf
