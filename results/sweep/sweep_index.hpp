#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heteroperf {

/// Swept keys and their values at one point: {"scale.ranks", "2"}, in the order of the axes.
using SweepPoint = std::vector<std::pair<std::string, std::string>>;
/// "ranks=2 micro_batches=4": the last parts of the keys; "all" without any.
std::string point_text(const SweepPoint& point);

enum class SweepRunState {
  waiting,
  running,      ///< in an index that is read: the sweep was killed on the way
  complete,     ///< it has a record; the rules may still say that it is invalid
  failed,       ///< it ended by itself without a complete record
  interrupted,  ///< the sweep was stopped
};
const char* to_string(SweepRunState state);

/// One run of a sweep.
struct SweepRun {
  std::string folder;  ///< in the sweep's own
  std::size_t point = 0, repeat = 0;
  std::uint64_t seed = 0;
  SweepRunState state = SweepRunState::waiting;
  std::optional<int> exit_code;
  double seconds = 0;  ///< wall time of the process
  std::string reason;  ///< why it has no complete record
};

/// What a run left that was not complete when the sweep went on.
struct SetAside {
  std::string folder, was, why;
};

/// sweep.json: what a sweep is to run and how far it is.
struct SweepIndex {
  std::string sweep_id, created_utc;
  std::vector<std::string> command;  ///< words after the program's name that all runs have
  std::vector<std::vector<std::string>> axes;  ///< keys that change together, one list per axis
  std::vector<SweepPoint> points;
  std::size_t repeats = 1;
  std::uint64_t first_seed = 1;
  std::vector<SweepRun> runs;  ///< in the order in which they are run
  std::vector<SetAside> set_aside;
  /// What its runs could not tell when it was made from them again; empty: it never was.
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
/// "002-ranks=2-seed=1": its folder; `number` from 1. What a file system may not take is a dash,
/// and it ends after 60 bytes.
std::string sweep_run_folder(std::size_t number, const SweepPoint& point, std::uint64_t seed);

std::filesystem::path sweep_file(const std::filesystem::path& folder);
bool is_sweep_folder(const std::filesystem::path& folder);
/// The sweep that a path means: its folder, or its sweep.json.
std::optional<std::filesystem::path> sweep_folder_of(const std::filesystem::path& path);
/// Throws UserError where it is missing, malformed, of another version, or names folders outside of
/// its own.
SweepIndex read_sweep(const std::filesystem::path& folder);
SweepIndex parse_sweep(const std::string& text, const std::string& origin);
/// Whether the text of an index has the hash of what it says, however it is indented.
bool has_own_seal(const std::string& text);
/// Whether it is a sweep.json of a version that parse_sweep() refuses.
bool is_of_another_version(const std::string& text);
/// The text that an index parsed from `text` has where nobody changed it: this program's own keys
/// as it writes them, those that only a newer one knows as they are.
std::string sweep_text_as_written(const std::string& text, const SweepIndex& index);
/// By way of a temporary name. Of what only a newer program knows, keys of the runs are lost.
void write_sweep(const std::filesystem::path& folder, const SweepIndex& index);
std::string sweep_json_text(const SweepIndex& index);

}  // namespace heteroperf
