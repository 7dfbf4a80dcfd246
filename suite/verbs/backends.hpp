#pragma once

#include <string>
#include <utility>
#include <vector>

#include "results/text/document.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {

/// Optional parts of the program: mpi, nccl, cuda, hdf5.
using Backends = std::vector<std::pair<std::string, BackendStatus>>;
Backends find_backends();
/// Adds them at `key`, for programs; each verb tells people in its own words.
void add_backends(Document& document, const std::string& key, const Backends& backends);

}  // namespace heteroperf
