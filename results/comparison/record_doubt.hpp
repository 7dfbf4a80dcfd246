#pragma once

#include <optional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "results/comparison/run_digest.hpp"

namespace heteroperf {

/// Why a record cannot be relied on.
struct RecordDoubt {
  ErrorKind kind = ErrorKind::verification;
  std::string what;  ///< "not what was measured"
  std::string why, suggestion;

  std::string text() const { return what + ": " + why; }
  Error error(const std::string& name) const;  ///< `name`: of the record
};

/// A record that says something else than its journal, or a suite than its runs.
RecordDoubt edited_record(const std::string& why);

/// True when a journal lies beside the digest's record; a saved baseline has none.
bool has_journal(const RunDigest& digest);

/// Holds a digest to the journal beside its record: the record is made again from the journal,
/// whose lines must agree with its own graphs, and all of the digest is then what comes out.
/// Returns what the stored record says otherwise, or that another ruleset judged it; nothing where
/// it agrees, or where there is no journal.
std::optional<RecordDoubt> hold_to_journal(RunDigest& digest);
/// Calls hold_to_journal() for each, on several threads; the results are in the order of the
/// digests.
std::vector<std::optional<RecordDoubt>> hold_to_journals(std::vector<RunDigest>& digests);

}  // namespace heteroperf
