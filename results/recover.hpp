#pragma once

#include <filesystem>

#include "results/run_folder.hpp"

namespace heteroperf {

/// Rebuilds record.json, samples.h5 and the companion files from the journal of an interrupted run;
/// of a suite, those of each workload and then suite.json.
///
/// A torn last line stays where it is, does not count, and the record names its length and the hash
/// of the whole file, so that `verify` passes afterwards. Of a journal with another damaged line the
/// lines before it are kept; the whole file stays beside it as damaged-1.jsonl, with a warning.
FinishedRun recover(const std::filesystem::path& path);

}  // namespace heteroperf
