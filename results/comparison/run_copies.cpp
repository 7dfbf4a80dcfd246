// The same run is often found twice: in its run folder and as a saved baseline, or in a copied
// folder. Counting it twice would make two repetitions of one measurement and an interval that is
// too narrow. So this file keeps one record of each run_id, the one that can be trusted most: a
// journal beside a record confirms or contradicts it, and a record without one is neither. Copies
// with the same content vanish without a word; one with another content, or that its journal
// contradicts, is reported.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "results/comparison/record_doubt.hpp"
#include "results/comparison/run_set.hpp"

namespace heteroperf {
namespace {

using Places = std::vector<std::size_t>;

/// The worth of a record beside others of its run, the best first.
enum class RecordStanding { confirmed, unproven, contradicted };

struct RecordTrust {
  RecordStanding standing = RecordStanding::unproven;
  std::optional<RecordDoubt> doubt = {};  ///< where the record is contradicted
};

/// Places of the records whose run_id others have too, by run_id.
std::map<std::string, Places> repeated_ids(const std::vector<RunDigest>& runs) {
  std::map<std::string, Places> places;
  for (std::size_t i = 0; i < runs.size(); ++i) places[runs[i].run_id].push_back(i);
  std::erase_if(places, [](const auto& entry) { return entry.second.size() < 2; });
  return places;
}

/// Holds only the repeated records to their journals, as reading a journal takes long. It works on
/// copies of the digests: holding a digest to its journal changes it.
std::map<std::size_t, RecordTrust> trust_in(const std::vector<RunDigest>& runs,
                                            const std::map<std::string, Places>& repeated) {
  Places all;
  std::vector<RunDigest> digests;
  for (const auto& [run_id, places] : repeated) {
    for (const std::size_t place : places) {
      all.push_back(place);
      digests.push_back(runs[place]);
    }
  }
  const auto doubts = hold_to_journals(digests);
  std::map<std::size_t, RecordTrust> trust;
  for (std::size_t i = 0; i < all.size(); ++i) {
    RecordTrust& record_trust = trust[all[i]];
    if (has_journal(digests[i])) record_trust.standing = RecordStanding::confirmed;
    if (doubts[i]) record_trust = {RecordStanding::contradicted, doubts[i]};
  }
  return trust;
}

/// Two records of one run that differ, and neither of them is known to be wrong.
SkippedEntry other_record(const RunDigest& copy, const RunDigest& kept) {
  const std::string reason =
      fmt::format("another record of {} than {}", copy.run_id, kept.record.string());
  return {copy.record, reason,
          UserError(copy.record.string() + " cannot be told from a run that is there already",
                    reason, "Leave one of the two out.")};
}

}  // namespace

void set_copies_aside(RunSet& run_set) {
  const auto repeated = repeated_ids(run_set.runs);
  if (repeated.empty()) return;
  auto trust = trust_in(run_set.runs, repeated);
  std::vector<char> leaves(run_set.runs.size(), 0);
  for (const auto& [run_id, places] : repeated) {
    // Among records of equal standing the first one in the order of the runs stays.
    const auto standing = [&](std::size_t place) { return trust[place].standing; };
    const std::size_t kept = *std::ranges::min_element(places, {}, standing);
    for (const std::size_t place : places) {
      if (place == kept) continue;
      leaves[place] = 1;
      const RunDigest& copy = run_set.runs[place];
      if (trust[place].standing == RecordStanding::contradicted) {
        const RecordDoubt& doubt = *trust[place].doubt;
        run_set.skipped.push_back({copy.record, doubt.text(), doubt.error(copy.record.string())});
      } else if (copy.record_sha256 != run_set.runs[kept].record_sha256) {
        run_set.skipped.push_back(other_record(copy, run_set.runs[kept]));
      }
    }
  }
  std::size_t place = 0;
  std::erase_if(run_set.runs, [&](const RunDigest&) { return leaves[place++] != 0; });
}

}  // namespace heteroperf
