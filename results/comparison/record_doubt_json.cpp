// The worth of a record beside its journal. All that a stored record says can be edited without a
// trace in it, so readers take nothing from it that its journal does not give: the record is made
// again, and the two are compared value by value. That takes about 20 microseconds per line of the
// journal, so what came out is remembered under the hash of the journal's bytes.
#include "results/comparison/record_doubt.hpp"

#include <fmt/format.h>

#include <utility>

#include "metrics/base/strict_json.hpp"
#include "results/comparison/journal_memory.hpp"
#include "results/comparison/parallel_rows.hpp"
#include "results/record/record.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/record/verify.hpp"
#include "results/text/sha256.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// The result of a journal when it was last read.
struct JournalVerdict {
  std::string record_sha256;  ///< hash of the record that it gives; empty where it has a problem
  std::string problem;        ///< a contradiction between its lines
};

fs::path journal_of(const RunDigest& digest) {
  return RunFiles{digest.record.parent_path()}.journal();
}

/// The sentence that names the place: without the leading slash of its pointer.
std::string disagreement(const std::string& path, const std::string& said,
                         const std::string& given) {
  return fmt::format("{} is {}, its journal gives {}", path.empty() ? "it" : path.substr(1), said,
                     given);
}

/// The first place where a stored record says something else than the one that its journal gives;
/// empty where none does. What a program did not write yet says nothing. `path`: a JSON pointer.
std::string first_disagreement(const Json& stored, const Json& given, const std::string& path) {
  const bool objects = stored.is_object() && given.is_object();
  const bool lists = stored.is_array() && given.is_array() && stored.size() == given.size();
  if (!objects && !lists) {
    return stored == given ? "" : disagreement(path, shown(stored), shown(given));
  }
  std::size_t index = 0;
  for (const auto& [key, value] : stored.items()) {  // the keys of a list are its indices
    const std::string place = path + '/' + key;
    if (objects && !given.contains(key)) return disagreement(place, shown(value), "nothing");
    const Json& other = objects ? given.at(key) : given[index++];
    if (std::string said = first_disagreement(value, other, place); !said.empty()) return said;
  }
  return {};
}

/// A journal with a problem makes its record doubtful, whatever the record says.
std::optional<RecordDoubt> doubt_of(const std::string& problem) {
  if (problem.empty()) return std::nullopt;
  return edited_record("its journal contradicts itself: " + problem);
}

/// Takes all of a digest from `rebuilt`, the record that its journal gives.
std::optional<RecordDoubt> take_over(RunDigest& digest, const std::string& rebuilt) {
  if (sha256_hex(rebuilt) == digest.record_sha256) return std::nullopt;
  const Json stored = read_stored_document(digest.record, record_format);
  RunDigest again = parse_run_digest(rebuilt, digest.record);
  again.record_sha256 = digest.record_sha256;
  const std::string judged_by = std::exchange(digest, std::move(again)).ruleset;
  // Another ruleset explains most other differences, so it is told in their place.
  if (judged_by != digest.ruleset) {
    return RecordDoubt{ErrorKind::not_comparable, "judged by ruleset " + judged_by,
                       "this program has " + digest.ruleset,
                       "`heteroperf recover` judges it again."};
  }
  const std::string said = first_disagreement(stored, Json::parse(rebuilt), "");
  return said.empty() ? std::nullopt : std::optional(edited_record(said));
}

/// The verdict that is known of the journal, if it settles the matter: the journal's bytes are
/// still those of the verdict, and either it has a problem or the record is the one that it gives.
/// Nothing where the journal has to be read. A kept verdict is the hash on the first line and the
/// problem after it; a text without a line end was not written by this file.
std::optional<JournalVerdict> known_verdict(const RunDigest& digest) {
  const auto text = known_finding(JournalFinding::verdict, digest.journal_sha256);
  const std::size_t line_end = text ? text->find('\n') : std::string::npos;
  if (line_end == std::string::npos) return {};
  if (sha256_file_hex(journal_of(digest).string()) != digest.journal_sha256) return {};
  JournalVerdict known{text->substr(0, line_end), text->substr(line_end + 1)};
  const bool settled = !known.problem.empty() || known.record_sha256 == digest.record_sha256;
  return settled ? std::optional(std::move(known)) : std::nullopt;
}

}  // namespace

Error RecordDoubt::error(const std::string& name) const {
  return {kind, {{name + " is " + what, why, suggestion}}};
}

RecordDoubt edited_record(const std::string& why) {
  return {ErrorKind::verification, "not what was measured", why,
          "`heteroperf verify` shows all of it."};
}

bool has_journal(const RunDigest& digest) {
  return digest.record.filename() == "record.json" && fs::exists(journal_of(digest));
}

std::optional<RecordDoubt> hold_to_journal(RunDigest& digest) {
  if (!has_journal(digest)) return std::nullopt;
  try {
    // The quick way: hashing the journal is far cheaper than reading it line by line.
    if (const auto known = known_verdict(digest)) return doubt_of(known->problem);
    const Journal journal = read_journal(journal_of(digest).string());
    if (journal.sha256 != digest.journal_sha256) {
      return edited_record("it was not made from the journal beside it");
    }
    JournalVerdict verdict;
    std::string rebuilt;
    verdict.problem = first_wrong_content(journal, digest.record.parent_path());
    if (verdict.problem.empty()) {
      rebuilt = build_record(journal);
      verdict.record_sha256 = sha256_hex(rebuilt);
    }
    // The journal's bytes do not tell all of its baselines, whose runs lie beside it.
    if (journal.first<BaselineEvent>() == nullptr) {
      keep_finding(JournalFinding::verdict, journal.sha256,
                   verdict.record_sha256 + '\n' + verdict.problem);
    }
    if (auto doubt = doubt_of(verdict.problem)) return doubt;
    return take_over(digest, rebuilt);
  } catch (const Error& error) {
    return edited_record(std::string("its journal is damaged: ") + error.what());
  }
}

std::vector<std::optional<RecordDoubt>> hold_to_journals(std::vector<RunDigest>& digests) {
  std::vector<std::optional<RecordDoubt>> doubts(digests.size());
  in_parallel(digests.size(), [&](std::size_t i) { doubts[i] = hold_to_journal(digests[i]); });
  return doubts;
}

}  // namespace heteroperf
