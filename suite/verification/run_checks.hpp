#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "results/record/verify.hpp"

namespace heteroperf {

/// Trains `steps` steps of a finished run again and holds their losses to its journal, a check per
/// stretch: from the first step, and, where a checkpoint has steps behind it, half of them from
/// there. Of a search of several groups only steps that do not depend on the order of outcomes are
/// trained: those of first trials until their first rung. On the processor, program and kernels of
/// the run losses must be equal in every bit, else within a band that the check names. Each stretch
/// is a process of its own, in a folder that is removed.
///
/// Throws Error{environment} where the run cannot be trained here: emulated devices, more ranks
/// than this machine has cores for, data, GPUs or a first checkpoint that are not here, or a search
/// of which every step depends on that order; Error{timeout} where it takes far longer than the run
/// did; Error{interrupted} on a stop signal.
std::vector<VerifyCheck> replay_run(const std::filesystem::path& run, std::uint64_t steps);

/// One check per checkpoint that a run still has: whole, as its checksums say, of the journal's
/// model, as large as its line says, and among the journal's checkpoints. Reads all of their data.
std::vector<VerifyCheck> check_checkpoints(const std::filesystem::path& run);

/// One check per plan of a run whose model has several components: the bytes that it sends between
/// them, and the least that are needed, are computed again. None for other runs.
std::vector<VerifyCheck> check_borders(const std::filesystem::path& run);

}  // namespace heteroperf
