#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "results/journal/events.hpp"

namespace heteroperf {

/// Names a point by the last parts of its keys, "ranks=2 micro_batches=4"; "all" without any.
std::string point_text(const SweepPoint& point);

enum class SweepRunState {
  waiting,
  running,      ///< in an index that is read: the sweep was killed on the way
  complete,     ///< it has a record; the rules may still say that it is invalid
  failed,       ///< it ended by itself without a complete record
  interrupted,  ///< the sweep was stopped
};
constexpr std::array<const char*, 5> value_names(SweepRunState) {
  return {"waiting", "running", "complete", "failed", "interrupted"};
}

/// One run of a sweep.
struct SweepRun {
  std::string folder;  ///< in the sweep's own
  std::size_t point = 0, repeat = 0;
  std::uint64_t seed = 0;
  SweepRunState state = SweepRunState::waiting;
  std::optional<int> exit_code;
  double seconds = 0;  ///< wall time of the process
  std::string reason;  ///< why it has no complete record
  /// Place in the order of the runs, from 1; 0 for a run of an older program, whose journal does
  /// not tell its place.
  std::size_t number = 0;
};

/// The folder of a run that was not complete when the sweep went on, or an old sweep.json.
struct SetAside {
  std::string folder, was, why;
};

/// The content of sweep.json, which says what a sweep is to run and how far it is.
struct SweepIndex {
  std::string sweep_id, created_utc;
  std::vector<std::string> command;  ///< words after the program's name that all runs have
  std::vector<std::vector<std::string>> axes;  ///< keys that change together, one list per axis
  std::vector<SweepPoint> points;
  std::size_t repeats = 1;
  std::uint64_t first_seed = 1;
  std::vector<SweepRun> runs;  ///< in the order in which they are run
  std::vector<SetAside> set_aside;
  /// Facts that its runs could not tell when `recover` made it from them; empty: it never did.
  std::vector<std::string> unknown;
  /// Its file has the SHA-256 of its content; those of older programs have not.
  bool sealed = true;
  /// Keys that only a newer program knows, and their values as JSON.
  std::vector<std::pair<std::string, std::string>> gained;

  std::size_t count(SweepRunState state) const;
  bool rebuilt() const { return !unknown.empty(); }
  /// Nobody knows whether a rebuilt one has all that was planned.
  bool done() const { return !rebuilt() && count(SweepRunState::complete) == runs.size(); }
};

/// The runs in their order: each repetition goes through all points, every second one backwards, so
/// that a drift of the machine falls on all points alike. Repetition r has the seed first_seed + r.
std::vector<SweepRun> there_and_back(const SweepIndex& index);
/// Names the folder of a run, "002-ranks=2-seed=1", with a dash for each character that a file
/// system may not take, and at most 60 bytes. `number`: from 1.
std::string sweep_run_folder(std::size_t number, const SweepPoint& point, std::uint64_t seed);
/// The place that the run's journal is to name.
SweepPlace place_of(const SweepIndex& index, const SweepRun& run);

std::filesystem::path sweep_file(const std::filesystem::path& folder);
bool is_sweep_folder(const std::filesystem::path& folder);
/// The sweep that a path means: its folder, or its sweep.json.
std::optional<std::filesystem::path> sweep_folder_of(const std::filesystem::path& path);
/// Throws UserError where it is missing, malformed, of another version, or names folders outside of
/// its own.
SweepIndex read_sweep(const std::filesystem::path& folder);
SweepIndex parse_sweep(const std::string& text, const std::string& origin);
/// True where the text of an index has the hash of its content, however it is indented.
bool has_own_seal(const std::string& text);
/// True for a sweep.json of a version that parse_sweep() refuses.
bool is_of_another_version(const std::string& text);
/// The text that an index parsed from `text` has where nobody changed it: this program's own keys
/// as it writes them, those that only a newer one knows as they are.
std::string sweep_text_as_written(const std::string& text, const SweepIndex& index);
/// Replaces sweep.json as a whole. Keys that only a newer program knows stay, but for those of
/// runs.
void write_sweep(const std::filesystem::path& folder, const SweepIndex& index);
std::string sweep_json_text(const SweepIndex& index);

}  // namespace heteroperf
