#include "suite/sweep/swept_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "metrics/base/error.hpp"
#include "results/journal.hpp"
#include "results/run_folder.hpp"
#include "suite/sweep/run_outcome.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t fewest_digits = 3, most_digits = 5;

/// "002-ranks=2-seed=1" is 2; 0 for what is no name of a run.
std::size_t number_of(const std::string& name) {
  const std::size_t digits = name.find('-');
  if (digits == std::string::npos || digits < fewest_digits || digits > most_digits) return 0;
  std::size_t number = 0;
  const char* const end = name.data() + digits;
  const auto [stop, error] = std::from_chars(name.data(), end, number);
  return error == std::errc() && stop == end ? number : 0;
}

void read_start(const StartEvent& start, SweptRun& run) {
  run.run_id = start.run_id;
  run.created_utc = start.created_utc;
  run.words = read_sweep_run_words(start.argv);
  if (!run.words) {
    run.foreign = fmt::format("no sweep started it: '{}'", fmt::join(start.argv, " "));
    return;
  }
  const std::string before = fs::path(run.words->folder).filename().string();
  if (before != run.folder) run.foreign = fmt::format("it was {} when it was run", before);
}

SweptRun read_run(const fs::path& folder, std::size_t number) {
  SweptRun run;
  run.folder = folder.filename().string();
  run.number = number;
  const std::string unreadable = why_unreadable(folder);
  run.silence = unreadable.empty() ? "it has no journal" : unreadable;
  for (const fs::path& journal : journals_in(folder)) {
    try {
      // Damage further on does not make a command unknown.
      read_start(read_journal_start(journal.string()), run);
      run.silence.clear();
      break;
    } catch (const Error& error) {
      run.silence = error.what();
    }
  }
  return run;
}

/// It has runs, and is none.
bool looks_like_sweep(const fs::path& folder) {
  const RunFiles files{folder};
  std::error_code error;
  for (const fs::path& own : {files.journal(), files.record(), files.suite()}) {
    if (fs::exists(own, error)) return false;
  }
  const fs::directory_iterator entries(folder, error);
  return std::any_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
    std::error_code unreadable;
    return number_of(entry.path().filename().string()) > 0 && entry.is_directory(unreadable);
  });
}

}  // namespace

std::vector<SweptRun> swept_runs(const fs::path& folder) {
  std::vector<SweptRun> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::size_t number = number_of(entry.path().filename().string());
    if (number > 0 && entry.is_directory(error)) runs.push_back(read_run(entry.path(), number));
  }
  std::sort(runs.begin(), runs.end(), [](const SweptRun& a, const SweptRun& b) {
    return std::tie(a.number, a.folder) < std::tie(b.number, b.folder);
  });
  return runs;
}

std::optional<fs::path> damaged_sweep_of(const fs::path& path) {
  const bool file = path.filename() == sweep_file({}).filename();
  const fs::path folder = !file ? path : path.has_parent_path() ? path.parent_path() : ".";
  std::error_code error;
  if (!fs::is_directory(folder, error)) return std::nullopt;
  if (fs::exists(sweep_file(folder), error) || looks_like_sweep(folder)) return folder;
  return std::nullopt;
}

}  // namespace heteroperf
