#pragma once

#include <string>

#include "results/journal/journal.hpp"
#include "results/record/ruleset.hpp"
#include "results/record/run_summary.hpp"

namespace heteroperf {

/// The text of record.json, a pure function of the journal: fixed key order, shortest round-trip
/// numbers, no NaN or Infinity, operation counts as decimal strings, absent instead of null.
/// Throws UserError when the journal has no start line.
std::string build_record(const Journal& journal);

/// As above, of a summary already made.
std::string build_record(const Journal& journal, const RunSummary& summary,
                         const Validity& validity);

}  // namespace heteroperf
