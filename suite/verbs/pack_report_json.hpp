#pragma once

#include <string>

#include "results/packing/run_archive.hpp"

namespace heteroperf {

/// What `pack --json` prints.
std::string pack_json_text(const PackedArchive& packed);

}  // namespace heteroperf
