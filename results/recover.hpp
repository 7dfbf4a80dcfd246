#pragma once

#include <filesystem>

#include "results/run_folder.hpp"

namespace heteroperf {

/// Rebuilds record.json, samples.h5 and the companion files from the journal of an interrupted run;
/// of a suite, those of each workload and then suite.json.
///
/// The journal itself is never touched: a torn last line stays where it is, does not count, and the
/// record names its length and the hash of the whole file, so that `verify` passes afterwards.
/// Throws JournalError when a line other than the last is damaged.
FinishedRun recover(const std::filesystem::path& path);

}  // namespace heteroperf
