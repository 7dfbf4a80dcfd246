// `--sweep` and `--repeat` make one command a sweep of many runs. Each `--sweep` is an axis: keys
// that change together, and their values. A point is one combination of the axes' values, and every
// point is run `--repeat` times. All points are checked as configurations of runs before the first
// run starts, because a sweep may take days.
#include "suite/sweep/sweep_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "results/record/run_folder.hpp"
#include "results/text/number_text.hpp"
#include "suite/config/run_config_json.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t most_runs = 10000;
constexpr std::int64_t most_repeats = 1000;  // of one point
constexpr const char* trace_of_one = "it is the trace of one run";

/// A key that cannot be swept, with the reason for the user.
struct RefusedKey {
  const char* path;
  const char* why;
};
constexpr RefusedKey refused[] = {
    {"out", "every run of a sweep gets a folder of its own in the sweep's"},
    {"trace", trace_of_one},
    {"seed", "--repeat N gives N repetitions seeds of their own"},
};

/// The configuration key that a flag without its dashes, or the key itself, stands for; empty where
/// there is none.
std::string path_of(const std::string& name) {
  for (const ConfigKey& key : config_keys()) {
    if (key.path == name || key.flag == "--" + name) return key.path;
  }
  return {};
}

/// Lists every name that --sweep may mean, for the hint at the nearest one.
std::vector<std::string> sweepable_names() {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    names.push_back(key.path);
    if (!key.flag.empty()) names.push_back(key.flag.substr(2));
  }
  return names;
}

/// One --sweep: configuration keys and the values that they take together.
struct Axis {
  std::vector<std::string> paths;
  std::vector<std::vector<std::string>> values;  ///< one per path
};

/// Reads the texts of all --sweep options and notes everything that is wrong with them.
class SweepReader {
 public:
  SweepReader(const SweepRequest& request, ProblemList& problems)
      : request_(request), problems_(problems) {}

  std::vector<Axis> axes() {
    std::vector<Axis> axes;
    for (const std::string& text : request_.sweeps) {
      if (auto axis = read(text)) axes.push_back(std::move(*axis));
    }
    return axes;
  }

 private:
  /// Reads "KEY:KEY=VALUE:VALUE,VALUE:VALUE". Nothing where its form or a key is wrong; wrong
  /// values are noted and left out.
  std::optional<Axis> read(const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      problems_.add(fmt::format("--sweep '{}' is not usable", text), "expected KEY=VALUE,VALUE",
                    "For example --sweep ranks=1,2,4");
      return std::nullopt;
    }
    Axis axis;
    for (const std::string& key : split(text.substr(0, equals), ':')) {
      if (!take_key(key, axis)) return std::nullopt;
    }
    for (const std::string& value : split(text.substr(equals + 1), ',')) {
      take_value(text, value, axis);
    }
    return axis;
  }

  bool take_key(const std::string& key, Axis& axis) {
    const std::string path = path_of(key);
    if (path.empty()) {
      const std::string near = nearest_name(key, sweepable_names());
      problems_.add(fmt::format("--sweep of an unknown key '{}'", key),
                    "a flag of `run` without dashes, or a configuration key",
                    near.empty() ? "" : fmt::format("Did you mean '{}'?", near));
      return false;
    }
    for (const RefusedKey& refusal : refused) {
      if (path == refusal.path) problems_.add("--sweep cannot change " + path, refusal.why);
    }
    if (!seen_.insert(path).second) problems_.add(path + " is swept twice");
    if (const Setting* setting = last_of(request_.settings, path)) {
      problems_.add(fmt::format("{} and --sweep {} exclude each other", shown(*setting), key), "",
                    "Leave one of them out");
    }
    axis.paths.push_back(path);
    return true;
  }

  void take_value(const std::string& text, const std::string& value, Axis& axis) {
    std::vector<std::string> parts{value};
    if (axis.paths.size() > 1) parts = split(value, ':');
    if (parts.size() != axis.paths.size()) {
      problems_.add(
          fmt::format("--sweep '{}': '{}' has {}", text, value, plural(parts.size(), "value")),
          fmt::format("{} keys change together", axis.paths.size()));
    } else if (std::any_of(parts.begin(), parts.end(), [](const auto& p) { return p.empty(); })) {
      problems_.add(fmt::format("--sweep '{}' has an empty value", text));
    } else if (std::find(axis.values.begin(), axis.values.end(), parts) != axis.values.end()) {
      problems_.add(fmt::format("--sweep '{}' has '{}' twice", text, value), "",
                    "--repeat N runs every point N times");
    } else {
      axis.values.push_back(std::move(parts));
    }
  }

  const SweepRequest& request_;
  ProblemList& problems_;
  std::set<std::string> seen_;
};

/// Makes every combination of the axes' values, the last axis changing first; without axes the one
/// empty point.
std::vector<SweepPoint> combinations(const std::vector<Axis>& axes) {
  std::vector<SweepPoint> points(1);
  for (const Axis& axis : axes) {
    std::vector<SweepPoint> longer;
    for (const SweepPoint& point : points) {
      for (const std::vector<std::string>& values : axis.values) {
        SweepPoint& next = longer.emplace_back(point);
        for (std::size_t i = 0; i < values.size(); ++i) {
          next.emplace_back(axis.paths[i], values[i]);
        }
      }
    }
    points = std::move(longer);
  }
  return points;
}

/// Checks a point as the configuration of a run. Problems say at which point they are.
void check_point(const SweepRequest& request, const SweepPoint& point, ProblemList& problems) {
  ProblemList here;
  std::vector<Setting> settings = request.settings;
  for (const auto& [path, value] : point) settings.push_back({path, value});
  const RunConfig base = request.quick ? quick_config() : RunConfig{};
  const RunConfig config = apply_settings(base, settings, here);
  if (here.empty()) validate(config, settings, here);
  for (const Problem& problem : here.problems()) {
    const std::string where = point.empty() ? "" : fmt::format(" at {}", point_text(point));
    problems.add(problem.problem + where, problem.why, problem.suggestion);
  }
}

/// Limits the repetitions, and all runs together, to what a folder and a reader of tables can take.
void check_counts(const SweepRequest& request, std::size_t points, ProblemList& problems) {
  if (request.repeats < 1 || request.repeats > most_repeats) {
    problems.add(fmt::format("--repeat {} is out of range", request.repeats),
                 fmt::format("1 to {}", most_repeats));
  } else if (points * static_cast<std::size_t>(request.repeats) > most_runs) {
    problems.add(fmt::format("{} points of {} runs each are too many", points, request.repeats),
                 fmt::format("at most {} runs", most_runs));
  }
}

void add_setting(const std::string& path, const std::string& value,
                 std::vector<std::string>& words) {
  words.emplace_back("--set");
  words.push_back(path + '=' + value);
}

/// The words that all runs share; the seed is not among them.
std::vector<std::string> common_words(const SweepRequest& request) {
  std::vector<std::string> words{"run"};
  if (request.quick) words.emplace_back("--quick");
  for (const Setting& setting : request.settings) {
    if (setting.path != "seed") add_setting(setting.path, setting.value, words);
  }
  return words;
}

}  // namespace

SweepIndex plan_sweep(const SweepRequest& request) {
  ProblemList problems;
  if (const Setting* trace = last_of(request.settings, "trace")) {
    problems.add(shown(*trace) + " does not fit a sweep", trace_of_one);
  }
  const std::vector<Axis> axes = SweepReader(request, problems).axes();
  SweepIndex index;
  index.points = combinations(axes);
  check_counts(request, index.points.size(), problems);
  problems.throw_if_any();
  for (const SweepPoint& point : index.points) check_point(request, point, problems);
  problems.throw_if_any();
  const Setting* workload = last_of(request.settings, "workload");
  const RunName name = make_run_name(workload == nullptr ? "suite" : workload->value);
  index.sweep_id = "sweep-" + name.run_id;
  index.created_utc = name.created_utc;
  index.command = common_words(request);
  for (const Axis& axis : axes) index.axes.push_back(axis.paths);
  index.repeats = request.repeats;
  ProblemList told_already;
  index.first_seed = apply_settings(RunConfig{}, request.settings, told_already).seed;
  index.runs = there_and_back(index);
  return index;
}

std::vector<std::string> sweep_run_words(const SweepIndex& index, const SweepRun& run,
                                         const std::string& folder) {
  std::vector<std::string> words = index.command;
  for (const auto& [path, value] : index.points[run.point]) add_setting(path, value, words);
  add_setting("seed", fmt::format("{}", run.seed), words);
  for (const char* word : {"--no-color", "--out"}) words.emplace_back(word);
  words.push_back(folder);
  return words;
}

}  // namespace heteroperf
