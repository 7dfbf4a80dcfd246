#pragma once

#include <string>

#include "suite/verbs/align_runs.hpp"

namespace heteroperf {

/// For people: the acceptance, the steps furthest apart, the parameters furthest apart.
std::string alignment_table(const Alignment& alignment);

/// The document of `align --json`. Numbers that are not finite are absent.
std::string alignment_json_text(const Alignment& alignment);

}  // namespace heteroperf
