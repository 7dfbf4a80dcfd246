#include "suite/sweep/known_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "metrics/base/error.hpp"
#include "suite/sweep/sweep_request.hpp"
#include "suite/sweep/swept_runs.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

SweepPoint settings_from(const SweepRunWords& words, std::size_t count) {
  return {words.settings.begin() + static_cast<std::ptrdiff_t>(count), words.settings.end()};
}

/// Whether the run's folder is named after the settings from the `count`th on.
bool is_named_after(const SweptRun& run, std::size_t count) {
  return count <= run.words->settings.size() &&
         run.folder ==
             sweep_run_folder(run.number, settings_from(*run.words, count), run.words->seed);
}

/// How many of its settings may be the sweep's command, the others being its point.
std::set<std::size_t> command_lengths(const SweptRun& run) {
  std::set<std::size_t> lengths;
  for (std::size_t count = 0; count <= run.words->settings.size(); ++count) {
    if (is_named_after(run, count)) lengths.insert(count);
  }
  return lengths;
}

/// "run --set workload=llm --sweep scale.ranks": nobody writes it so, but it shows what differs.
std::string command_text(const SweptRun& run) {
  const std::size_t length = *command_lengths(run).begin();
  std::string text = fmt::format("{}", fmt::join(command_of(*run.words, length), " "));
  for (const auto& [key, value] : settings_from(*run.words, length)) text += " --sweep " + key;
  return text;
}

/// The sweep's folder when the run was started, without what is above it.
std::string home_of(const SweptRun& run) {
  return fs::path(run.words->folder).parent_path().filename().string();
}

/// The seed at the end of "001-ranks=2-seed=1"; nothing where the name was cut short.
std::optional<std::uint64_t> seed_in_name(const std::string& name) {
  constexpr std::string_view mark = "-seed=";
  const std::size_t at = name.rfind(mark);
  if (at == std::string::npos) return std::nullopt;
  std::uint64_t seed = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + at + mark.size(), end, seed);
  if (error != std::errc() || stop != end) return std::nullopt;
  return seed;
}

KnownRun known_as(const SweptRun& run, SweepPoint point, std::uint64_t seed) {
  return {run.folder, run.number, std::move(point), seed, run.run_id, run.created_utc};
}

class RunRecognition {
 public:
  explicit RunRecognition(const fs::path& folder) : folder_(folder), found_(swept_runs(folder)) {}

  KnownRuns known() {
    sort_out();
    split_settings();
    recognize_silent();
    refuse_contradictions();
    tell_other_homes();
    return std::move(known_);
  }

 private:
  /// Takes out what is no run of this sweep, and sets the silent ones aside.
  void sort_out() {
    for (SweptRun& run : found_) {
      if (run.foreign.empty() && run.words && command_lengths(run).empty()) {
        run.foreign = "it is not named after what it was started with";
      }
      if (!run.foreign.empty()) {
        leave_out(run, run.foreign);
      } else {
        (run.words ? told_ : silent_).push_back(&run);
      }
    }
    if (!told_.empty()) return;
    const bool any = !found_.empty();
    throw UserError(
        "no run in " + folder_.string() + " tells of a sweep",
        any ? fmt::format("{}: {}", found_.front().folder,
                          found_.front().foreign + found_.front().silence)
            : "no folder in it is named as a sweep's run, 001-ranks=1-seed=1",
        "`heteroperf recover` of a run's own folder makes its record from its journal.");
  }

  /// Which settings are the command that all runs share.
  void split_settings() {
    const SweptRun& first = *told_.front();
    std::set<std::size_t> lengths = command_lengths(first);
    for (const SweptRun* run : told_) {
      std::erase_if(lengths, [&](std::size_t count) {
        return !is_named_after(*run, count) ||
               command_of(*run->words, count) != command_of(*first.words, count) ||
               keys_of(*run, count) != keys_of(first, count);
      });
      if (lengths.empty()) refuse_mixture(first, *run);
    }
    if (lengths.size() > 1) {
      throw UserError("what was swept in " + folder_.string() + " is ambiguous",
                      fmt::format("{} can be named after its last {} settings or fewer",
                                  first.folder, first.words->settings.size() - *lengths.begin()),
                      "Its runs can still be used one by one.");
    }
    const std::size_t count = *lengths.begin();
    known_.command = command_of(*first.words, count);
    for (const SweptRun* run : told_) {
      known_.runs.push_back(known_as(*run, settings_from(*run->words, count), run->words->seed));
    }
  }

  static std::vector<std::string> keys_of(const SweptRun& run, std::size_t count) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : settings_from(*run.words, count)) keys.push_back(key);
    return keys;
  }

  [[noreturn]] void refuse_mixture(const SweptRun& a, const SweptRun& b) const {
    throw UserError("the runs in " + folder_.string() + " are of several sweeps",
                    fmt::format("{} is of '{}', {} of '{}'", a.folder, command_text(a), b.folder,
                                command_text(b)),
                    "Move those of the other sweep to a folder of their own.");
  }

  /// By their names, where these can mean one point only.
  void recognize_silent() {
    for (const SweptRun* run : silent_) {
      const auto seed = seed_in_name(run->folder);
      if (seed && !fits_in_one_sweep(*seed)) {
        leave_out(*run, fmt::format("{}; the seed in its name is {} or more from another run's",
                                    run->silence, most_repeats));
        continue;
      }
      const auto point = seed ? point_named(*run, *seed) : std::nullopt;
      if (point) {
        known_.runs.push_back(known_as(*run, *point, *seed));
      } else {
        leave_out(*run, run->silence + "; its name alone does not tell what it was to be");
      }
    }
    std::sort(known_.runs.begin(), known_.runs.end(),
              [](const KnownRun& a, const KnownRun& b) { return a.number < b.number; });
  }

  /// Beside the seeds that are known.
  bool fits_in_one_sweep(std::uint64_t seed) const {
    std::uint64_t first = seed, last = seed;
    for (const KnownRun& run : known_.runs) {
      first = std::min(first, run.seed);
      last = std::max(last, run.seed);
    }
    return last - first < static_cast<std::uint64_t>(most_repeats);
  }

  /// A dash may stand for any character: a value with one is taken from other runs only.
  std::optional<SweepPoint> point_named(const SweptRun& run, std::uint64_t seed) const {
    for (const KnownRun& known : known_.runs) {
      if (known.seed != seed && spells(run, known.point, seed)) return known.point;
    }
    return point_spelled(run, seed);
  }

  /// Whether it is named after the point, and nothing of the point had to become a dash.
  static bool spells(const SweptRun& run, const SweepPoint& point, std::uint64_t seed) {
    const bool whole = std::all_of(point.begin(), point.end(), [&](const auto& one) {
      return run.folder.find('-' + point_text(SweepPoint{one}) + '-') != std::string::npos;
    });
    return whole && sweep_run_folder(run.number, point, seed) == run.folder;
  }

  std::optional<SweepPoint> point_spelled(const SweptRun& run, std::uint64_t seed) const {
    SweepPoint point;
    std::size_t at = run.folder.find('-');
    for (const auto& [key, unused] : known_.runs.front().point) {
      const std::string mark = '-' + point_text(SweepPoint{{key, ""}});
      if (run.folder.compare(at, mark.size(), mark) != 0) return std::nullopt;
      const std::size_t begin = at + mark.size();
      at = run.folder.find('-', begin);
      if (at == std::string::npos) return std::nullopt;
      point.emplace_back(key, run.folder.substr(begin, at - begin));
    }
    if (!spells(run, point, seed)) return std::nullopt;
    return point;
  }

  /// A run has one place, a place has one run, and repetitions follow one another.
  void refuse_contradictions() const {
    std::map<std::size_t, std::string> places;
    std::map<std::pair<SweepPoint, std::uint64_t>, std::string> runs;
    ProblemList problems;
    const auto hold = [&](const std::string& before, const std::string& now) {
      if (before == now) return;
      problems.add(fmt::format("{} and {} are one run of a sweep", before, now),
                   "in " + folder_.string() + " two folders have one number, or one point and seed",
                   "Move one of them elsewhere.");
    };
    for (const KnownRun& run : known_.runs) {
      hold(places.emplace(run.number, run.folder).first->second, run.folder);
      hold(runs.emplace(std::pair(run.point, run.seed), run.folder).first->second, run.folder);
    }
    for (std::size_t i = 1; i < known_.runs.size(); ++i) {
      const KnownRun &before = known_.runs[i - 1], &run = known_.runs[i];
      if (run.seed >= before.seed) continue;
      problems.add(fmt::format("{} and {} are of several sweeps", before.folder, run.folder),
                   "a later run of one sweep has the same seed or a later one",
                   "Move those of the other sweep to a folder of their own.");
    }
    const KnownRun &first = known_.runs.front(), &last = known_.runs.back();
    if (problems.empty() && !fits_in_one_sweep(first.seed)) {
      problems.add(fmt::format("{} and {} are of several sweeps", first.folder, last.folder),
                   fmt::format("one sweep has at most {} seeds", most_repeats),
                   "Move those of the other sweep to a folder of their own.");
    }
    problems.throw_if_any();
  }

  /// A folder may have been renamed between two runs; or runs of one command were mixed.
  void tell_other_homes() {
    const SweptRun& first = *told_.front();
    for (const SweptRun* run : told_) {
      if (home_of(*run) == home_of(first)) continue;
      known_.warnings.push_back(
          fmt::format("{} was run in a folder '{}', {} in '{}': are they of one sweep?",
                      first.folder, home_of(first), run->folder, home_of(*run)));
    }
  }

  void leave_out(const SweptRun& run, const std::string& why) {
    known_.warnings.push_back(fmt::format("{} is left out: {}", run.folder, why));
  }

  const fs::path& folder_;
  std::vector<SweptRun> found_;
  std::vector<const SweptRun*> told_, silent_;
  KnownRuns known_;
};

}  // namespace

KnownRuns known_runs(const fs::path& folder) { return RunRecognition(folder).known(); }

}  // namespace heteroperf
