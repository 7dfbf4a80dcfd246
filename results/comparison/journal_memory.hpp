#pragma once

#include <optional>
#include <string>

namespace heteroperf {

/// The kinds of facts that this program finds out about a journal.
enum class JournalFinding { verdict, replay };

/// From now on findings are kept in the cache folder, under the SHA-256 of the journal's bytes and
/// this text: the program's name, version and commit, whose other versions may judge otherwise. A
/// cache that is gone, damaged or read-only, or that others may write to, only costs time. Not for
/// use from several threads at once; empty: nothing is kept any more.
void remember_findings(const std::string& program);

/// Returns what keep_finding() was given last; nothing where it is not known or the file was
/// touched.
std::optional<std::string> known_finding(JournalFinding kind, const std::string& journal_sha256);
void keep_finding(JournalFinding kind, const std::string& journal_sha256,
                  const std::string& text) noexcept;

}  // namespace heteroperf
