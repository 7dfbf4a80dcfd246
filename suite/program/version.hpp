#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runners/comm/world.hpp"

namespace heteroperf {

struct Document;

/// "0.1.0".
const char* version_text();
/// The commit the program was built from, with "-dirty" when the tree had changes; "unknown"
/// outside a git checkout.
const char* git_commit();
/// CMake's build type and the compiler: "Release, GNU 12.2.0".
const char* build_text();

/// Optional parts of the program: mpi, nccl, cuda, hdf5.
using Backends = std::vector<std::pair<std::string, BackendStatus>>;
Backends find_backends();
/// Adds them at `key`, for programs; each verb tells people in its own words.
void add_backends(Document& document, const std::string& key, const Backends& backends);

}  // namespace heteroperf
