#include "suite/sweep/rebuild_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "metrics/base/error.hpp"
#include "suite/sweep/known_runs.hpp"
#include "suite/sweep/run_outcome.hpp"
#include "suite/sweep/swept_axes.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// "sweep-20260101T101500Z-llm-1f0c9a77" has "2026-01-01T10:15:00Z".
std::optional<std::string> utc_in_name(const std::string& name) {
  constexpr std::string_view shape = "sweep-########T######Z-";
  if (name.size() <= shape.size()) return std::nullopt;
  std::string digits;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool digit = name[i] >= '0' && name[i] <= '9';
    if (shape[i] == '#' ? !digit : name[i] != shape[i]) return std::nullopt;
    if (digit) digits += name[i];
  }
  const auto part = [&](std::size_t from) { return digits.substr(from, 2); };
  return fmt::format("{}-{}-{}T{}:{}:{}Z", digits.substr(0, 4), part(4), part(6), part(8), part(10),
                     part(12));
}

/// "002" or "002 to 005".
std::string numbers_text(std::size_t first, std::size_t last) {
  return first == last ? fmt::format("{:03}", first) : fmt::format("{:03} to {:03}", first, last);
}

class IndexBuilder {
 public:
  explicit IndexBuilder(const fs::path& folder) : folder_(folder), known_(known_runs(folder)) {}

  RebuiltIndex build() {
    index_.command = known_.command;
    place_points();
    name_sweep();
    list_runs();
    list_set_aside();
    list_unknown();
    return {std::move(index_), std::move(known_.warnings)};
  }

 private:
  /// Points in the order of the first repetition, then those that only later ones have.
  void place_points() {
    std::uint64_t first_seed = known_.runs.front().seed, last_seed = first_seed;
    for (const KnownRun& run : known_.runs) {
      first_seed = std::min(first_seed, run.seed);
      last_seed = std::max(last_seed, run.seed);
    }
    index_.first_seed = first_seed;
    index_.repeats = static_cast<std::size_t>(last_seed - first_seed) + 1;
    std::vector<PlacedPoint> placed;
    for (const KnownRun& run : known_.runs) {
      if (run.seed == first_seed) placed.push_back({run.number - 1, run.point});
    }
    for (const PlacedPoint& one : placed) index_.points.push_back(one.point);
    for (const KnownRun& run : known_.runs) {
      if (place_of(run.point) == index_.points.size()) index_.points.push_back(run.point);
    }
    index_.axes = swept_axes(placed);
  }

  std::size_t place_of(const SweepPoint& point) {
    const std::vector<SweepPoint>& points = index_.points;
    return static_cast<std::size_t>(std::find(points.begin(), points.end(), point) -
                                    points.begin());
  }

  /// A folder that the program named has name and date of the sweep; else the first run's must do.
  void name_sweep() {
    const std::string name = fs::weakly_canonical(folder_).filename().string();
    if (const auto utc = utc_in_name(name)) {
      index_.sweep_id = name;
      index_.created_utc = *utc;
      return;
    }
    const auto first = std::find_if(known_.runs.begin(), known_.runs.end(),
                                    [](const KnownRun& run) { return !run.run_id.empty(); });
    HETEROPERF_EXPECT(first != known_.runs.end());  // one of them tells its command, and its id
    index_.sweep_id = "sweep-" + first->run_id;
    index_.created_utc = first->created_utc;
    index_.unknown.push_back("the sweep's own id and date: those of its first run stand for them");
  }

  void list_runs() {
    for (const KnownRun& known : known_.runs) {
      SweepRun run;
      run.folder = known.folder;
      run.point = place_of(known.point);
      run.seed = known.seed;
      run.repeat = static_cast<std::size_t>(run.seed - index_.first_seed);
      tell_outcome(folder_ / run.folder, run);
      index_.runs.push_back(std::move(run));
    }
  }

  /// Why they were set aside only the lost index told; their own state still does.
  void list_set_aside() {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_ / "aside", error)) {
      const std::string name = entry.path().filename().string();
      const std::string why = entry.is_directory(error) ? why_incomplete(entry.path())
                                                        : "an index that could not be used";
      index_.set_aside.push_back({"aside/" + name, "not known", why});
    }
    std::sort(index_.set_aside.begin(), index_.set_aside.end(),
              [](const SetAside& a, const SetAside& b) { return a.folder < b.folder; });
  }

  void list_unknown() {
    std::vector<std::string>& unknown = index_.unknown;
    std::size_t next = 1;
    for (const KnownRun& run : known_.runs) {
      if (run.number > next) {
        unknown.push_back(
            fmt::format("what {} was to be: it is not here", numbers_text(next, run.number - 1)));
      }
      next = run.number + 1;
    }
    if (known_.runs.front().number > 1) {
      unknown.push_back(fmt::format("the first seed, if it is not {}", index_.first_seed));
    }
    unknown.push_back(fmt::format("runs after {:03} that were planned and never started",
                                  known_.runs.back().number));
    unknown.push_back("how long the processes of its runs took");
  }

  const fs::path& folder_;
  KnownRuns known_;
  SweepIndex index_;
};

}  // namespace

RebuiltIndex rebuild_index(const fs::path& folder) { return IndexBuilder(folder).build(); }

}  // namespace heteroperf
