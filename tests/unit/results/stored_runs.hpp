#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {

/// What a stored run differs in from the closed one of fixed_run().
struct StoredRun {
  int number = 0;  ///< its date is so many minutes later, its id has it
  double step_s = 12;
  std::uint64_t seed = 42;
  std::string commit = "abcdef", build_type = "Release", host = "node";
  std::vector<std::string> gpus = {};  ///< models of the ranks' GPUs; none: no binding is recorded
  int steps = 30;                      ///< measured
};

SampleRun sample_of(const StoredRun& stored);
/// A finished run in `folder`/run-<number>; returns that.
std::filesystem::path store_run(const std::filesystem::path& folder, const StoredRun& stored);

/// Replaces the first occurrence of `from` in a file; fails the test where there is none.
void edit_file(const std::filesystem::path& file, const std::string& from, const std::string& to);

}  // namespace heteroperf
