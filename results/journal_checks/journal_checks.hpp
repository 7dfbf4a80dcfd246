#pragma once

#include <vector>

#include "results/journal/journal.hpp"
#include "results/record/verify.hpp"

namespace heteroperf {

/// Holds the lines of a journal to one another, a check per rule: graphs to their hashes,
/// operations and samples to graphs and plan, plan and scale to the request, trials to their
/// evaluations, and so on. A journal that was cut off after any line passes. results/README.md,
/// "Fields", names for each field the check that holds it.
std::vector<VerifyCheck> check_journal_lines(const Journal& journal);

}  // namespace heteroperf
