#pragma once

#include <filesystem>
#include <string>

#include "results/journal/journal.hpp"
#include "results/record/ruleset.hpp"
#include "results/record/run_summary.hpp"
#include "results/text/document.hpp"

namespace heteroperf {

/// The text of record.json, a pure function of the journal: fixed key order, shortest round-trip
/// numbers, no NaN or Infinity, operation counts as decimal strings, absent instead of null.
/// Throws UserError when the journal has no start line.
std::string build_record(const Journal& journal);

/// As above, of a summary already made.
std::string build_record(const Journal& journal, const RunSummary& summary,
                         const Validity& validity);

/// The record (or suite) in `path`, for reading: the one table at the end of a run. `json` is the
/// stored document itself. Throws UserError when there is none or it is malformed.
std::string show(const std::filesystem::path& path, DocumentForm form, const TextStyle& style);

/// As above, of record text in memory; `folder` is the path the table names.
std::string show_record(const std::string& record_text, const std::string& folder,
                        DocumentForm form, const TextStyle& style);

}  // namespace heteroperf
