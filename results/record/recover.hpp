#pragma once

#include <filesystem>

#include "results/record/run_folder.hpp"

namespace heteroperf {

/// Rebuilds record.json, samples.h5 and the companion files from the journal of an interrupted run;
/// of a suite, those of each workload and then suite.json, also where that is gone and the journals
/// name the suite.
///
/// A torn last line stays where it is, does not count, and the record names its length and the hash
/// of the whole file, so that `verify` passes afterwards. Of a journal with another damaged line
/// the lines before it are kept; the whole file stays beside it as damaged-1.jsonl, with a warning.
/// Throws Error{verification} where a suite.json has other workloads than its journals name or a
/// workload is not the suite's own.
FinishedRun recover(const std::filesystem::path& path);

}  // namespace heteroperf
