#pragma once

#include <string>

#include "runners/plan/plan.hpp"

namespace heteroperf {

/// The file format heteroperf-plan, version 1 (README.md). Round trips.
std::string plan_text(const Plan& plan);
/// Throws UserError with everything wrong, each with its path: unknown keys (with the nearest),
/// wrong types and values.
Plan parse_plan(const std::string& text, const std::string& origin);
Plan read_plan_file(const std::string& path);

}  // namespace heteroperf
