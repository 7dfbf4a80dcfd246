// `run --tune S` finds the ranks, threads and micro-batch with which a workload is fastest on this
// machine. It is successive halving (Jamieson and Talwalkar 2016): a first round runs every
// configuration for a moment, each later one half of those that are left, for longer, and the last
// one the best three, each twice, forth and back. A round is a sweep in a folder of its own, with
// runs that are processes like any other run's, so what is tuned is what will be run.
//
// A configuration's rate is the geometric mean of all of its runs, so that no measurement is lost,
// and its interval the one from run to run, which covers a drift of the machine between them.
//
// The samples of a step stay what they are without --tune, because they decide what the model
// learns; a search's groups keep theirs. What a run costs besides its window is learned in each
// round and taken from the time of the next.
#include "suite/sweep/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "metrics/statistics.hpp"
#include "results/comparison/run_set.hpp"
#include "results/record/run_folder.hpp"
#include "results/scaling/scale_curve.hpp"
#include "results/text/document.hpp"
#include "results/text/number_text.hpp"
#include "suite/config/reproduce.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/program/signals.hpp"
#include "suite/run/prepare.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t finalists = 3;
constexpr double shortest_window_s = 1;
/// A run is taken to cost this much besides its window before any has been seen.
constexpr double usual_cost_s = 2;

/// A key that a tuning sets, and its value in a choice.
struct TunedKey {
  const char* path;
  std::int64_t (*value)(const TuningChoice& choice);
};
constexpr TunedKey tuned_keys[] = {
    {"scale.ranks", [](const TuningChoice& c) { return std::int64_t{c.ranks}; }},
    {"scale.threads_per_rank", [](const TuningChoice& c) { return std::int64_t{c.threads}; }},
    {"batch.micro_batch", [](const TuningChoice& c) { return c.micro_batch; }},
    {"batch.micro_batches", [](const TuningChoice& c) { return c.micro_batches; }}};

/// The ranks and threads that use all cores, or as many of them as ranks of whole replicas can.
std::vector<std::pair<int, int>> placements(const TuningSpace& space) {
  std::vector<std::pair<int, int>> found;
  const int cores = space.cores;
  const auto add = [&](int ranks) {
    if (ranks % space.ranks_of_replica != 0) return;
    found.emplace_back(ranks, space.threads > 0 ? space.threads : std::max(1, cores / ranks));
  };
  if (space.ranks > 0) {
    add(space.ranks);
    return found;
  }
  const int most = std::max(1, cores / space.ranks_of_replica) * space.ranks_of_replica;
  for (int ranks = 1; ranks <= std::max(cores, most); ++ranks) {
    if (space.threads > 0 ? ranks == std::max(1, cores / space.threads)
                          : cores % ranks == 0 || ranks == most) {
      add(ranks);
    }
  }
  return found;
}

}  // namespace

std::vector<TuningChoice> tuning_choices(const TuningSpace& space) {
  constexpr std::int64_t widest = 4;
  std::vector<TuningChoice> choices;
  for (const auto& [ranks, threads] : placements(space)) {
    const std::int64_t replicas = space.search ? 1 : ranks / space.ranks_of_replica;
    for (std::int64_t factor = 1; factor <= widest * widest; factor *= 2) {
      // From a quarter of the own micro-batch on; one that is no whole number is none.
      const std::int64_t fourfold = space.micro_batch * factor;
      TuningChoice choice{ranks, threads, fourfold / widest};
      if (fourfold % widest != 0 || space.samples % (choice.micro_batch * replicas) != 0) continue;
      choice.micro_batches = space.samples / (choice.micro_batch * replicas);
      const auto fits = [](std::int64_t fixed, std::int64_t value) {
        return fixed == 0 || fixed == value;
      };
      if (fits(space.fixed_micro_batch, choice.micro_batch) &&
          fits(space.fixed_micro_batches, choice.micro_batches)) {
        choices.push_back(choice);
      }
    }
  }
  return choices;
}

std::vector<std::size_t> halving_rounds(std::size_t configurations) {
  std::vector<std::size_t> rounds{configurations};
  do {
    const std::size_t half = (rounds.back() + 1) / 2;
    rounds.push_back(std::min(rounds.back(), std::max(finalists, half)));
  } while (rounds.back() > finalists);
  return rounds;
}

namespace {

/// The options of a run that a tuning decides itself, and why they are refused.
struct OwnKey {
  const char *path, *why;
};
constexpr OwnKey own_keys[] = {
    {"measure.duration_s", "it decides how long its runs are"},
    {"measure.steps", "it decides how long its runs are"},
    {"measure.until_percent", "it decides how long its runs are"},
    {"plan.file", "a plan says who works and on how much"},
    {"cluster.file", "a description says who works, and emulated devices are as fast as it says"},
    {"with_baselines", "it runs one configuration after another"},
    {"trace", "it is the trace of one run"},
};

/// The keys besides that no axis may change: another model, or other replicas, and the
/// configurations no longer do the same work.
constexpr const char* work_keys[] = {"workload",          "model.size",  "model.name",
                                     "plan.pipeline",     "plan.tensor", "plan.context",
                                     "automl.group_ranks"};

/// Throws UserError where an axis of the user's changes what a tuning must keep.
void check_axes(const SweepRequest& request) {
  if (request.sweeps.empty()) return;
  ProblemList problems;
  const SweepIndex asked = plan_sweep(request);
  for (const auto& [path, value] : asked.points.front()) {
    const auto own = std::ranges::find(own_keys, path, &OwnKey::path);
    const bool work = std::ranges::find(work_keys, path) != std::end(work_keys);
    if (own == std::end(own_keys) && !work) continue;
    problems.add(fmt::format("--tune cannot sweep {}", path),
                 work ? "its configurations do one and the same work" : own->why,
                 "Tune one value after another");
  }
  problems.throw_if_any();
}

void check_request(const SweepRequest& request, double seconds, ProblemList& problems) {
  for (const OwnKey& key : own_keys) {
    const Setting* setting = last_of(request.settings, key.path);
    if (setting != nullptr) {
      problems.add(fmt::format("--tune and {} exclude each other", shown(*setting)), key.why,
                   "Leave one of them out");
    }
  }
  if (last_of(request.settings, "workload") == nullptr) {
    problems.add("--tune without a workload", "each one has a best configuration of its own",
                 "Name one, as in `heteroperf run llm --tune 120`");
  }
  if (request.repeats != 1) {
    problems.add("--tune and --repeat exclude each other", "its last round repeats by itself");
  }
  if (!(seconds > 0)) {
    problems.add(fmt::format("--tune {:g} is out of range", seconds), "seconds above 0");
  }
}

/// The run as it is without --tune.
struct UntunedRun {
  RunConfig config;
  PreparedRun prepared;
};
UntunedRun untuned_run(const SweepRequest& request) {
  ProblemList problems;
  UntunedRun run;
  run.config =
      apply_settings(request.quick ? quick_config() : RunConfig{}, request.settings, problems);
  problems.throw_if_any();
  const UsableCores cores = usable_cores();
  const RunConfig placed = with_ranks(run.config, {}, cores.count(), 0);
  const Placement placement = choose_placement(placed.scale, cores, 0);
  run.prepared = prepare_runs(placed, {}, placement, placement.ranks, Reading::nothing).front();
  return run;
}

TuningSpace space_of(const UntunedRun& run) {
  const RunConfig& config = run.config;
  const Workload& workload = run.prepared.workload;
  const UsableCores cores = usable_cores();
  TuningSpace space;
  space.cores = cores.count();
  space.search = run.prepared.groups > 0;
  space.ranks_of_replica = space.search
                               ? config.automl.group_ranks
                               : static_cast<int>(std::min<std::int64_t>(
                                     config.plan.ranks_of_copy(), std::numeric_limits<int>::max()));
  const int ranks = run.prepared.placement.ranks;
  space.micro_batch = workload.micro_batch;
  // The workload's number of micro-batches is that of a rank: a replica takes those of all its.
  space.samples = workload.micro_batch * workload.micro_batches;
  if (config.batch.micro_batches > 0) {
    space.samples *= space.search ? 1 : ranks / space.ranks_of_replica;
  } else if (!space.search) {
    space.samples *= ranks;
  }
  // Ranks on GPUs are as many as there are GPUs for.
  const bool open_ranks = config.scale.ranks == 0 && config.plan.data == 0 &&
                          config.scale.device == ScaleConfig().device;
  space.ranks = open_ranks ? 0 : ranks;
  space.threads = config.scale.threads_per_rank;
  space.fixed_micro_batch = config.batch.micro_batch;
  space.fixed_micro_batches = config.batch.micro_batches;
  return space;
}

/// The sweep of all configurations: the choices are one axis whose keys change together. Keys that
/// the user has fixed are none of it. Throws UserError where nothing is left to choose.
SweepIndex all_configurations(SweepRequest request, const UntunedRun& run) {
  const std::vector<TuningChoice> choices = tuning_choices(space_of(run));
  std::string keys;
  std::vector<std::string> values(choices.size());
  for (const TunedKey& key : tuned_keys) {
    if (last_of(request.settings, key.path) != nullptr) continue;
    keys += (keys.empty() ? "" : ":") + std::string(key.path);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      values[i] += fmt::format("{}{}", values[i].empty() ? "" : ":", key.value(choices[i]));
    }
  }
  if (choices.empty() || (request.sweeps.empty() && (choices.size() < 2 || keys.empty()))) {
    throw UserError(
        "--tune has nothing to choose",
        fmt::format("{} the {} samples of a step",
                    choices.size() == 1 ? "one configuration keeps" : "no configuration keeps",
                    space_of(run).samples),
        "Leave out some of --ranks, --threads-per-rank, --micro-batch and "
        "--micro-batches");
  }
  if (!choices.empty() && !keys.empty()) {
    request.sweeps.push_back(fmt::format("{}={}", keys, fmt::join(values, ",")));
  }
  const auto set_open = [&](const char* path, const std::string& value) {
    if (last_of(request.settings, path) == nullptr) request.settings.push_back({path, value});
  };
  // The scaling rule would give ranks of other threads another model.
  const auto sized = workloads_with("model.size");
  if (std::find(sized.begin(), sized.end(), run.config.workload) != sized.end()) {
    request.settings.push_back({"model.size", run.prepared.workload.size});
  }
  set_open("measure.peak_s", "0");
  set_open("measure.evaluation_samples", "1");
  return plan_sweep(request);
}

/// The runs of one configuration.
struct TunedPoint {
  std::vector<double> rates;  ///< one per run
  double window_s = 0;        ///< together
  std::size_t rounds = 0;
  std::string failed = {};  ///< why it is out; empty: it is not

  RepeatedRate rate() const {
    return rates.empty() || !failed.empty() ? RepeatedRate{} : repeated_rate(rates, std::nullopt);
  }
};

/// One tuning in its folder.
class Tuning {
 public:
  Tuning(SweepIndex all, const SweepRequest& request, double seconds, fs::path folder,
         const GlobalOptions& options)
      : all_(std::move(all)),
        seconds_(seconds),
        folder_(std::move(folder)),
        request_(request),
        options_(options),
        points_(all_.points.size()) {}

  /// Throws UserError where the time does not do.
  void run() {
    std::vector<std::size_t> left(all_.points.size());
    std::iota(left.begin(), left.end(), std::size_t{0});
    std::vector<std::size_t> rounds = halving_rounds(left.size());
    for (std::size_t r = 0; r < rounds.size(); ++r) {
      // Where there is no time for all rounds, those between the first and the last are left out,
      // then the last one's way back.
      const auto between = static_cast<std::ptrdiff_t>(std::max<std::size_t>(r, 1));
      while (window_of(rounds, r) < shortest_window_s && between + 1 < std::ssize(rounds)) {
        rounds.erase(rounds.begin() + between);
      }
      if (window_of(rounds, r) < shortest_window_s && r > 0) final_repeats_ = 1;
      const double window_s = window_of(rounds, r);
      if (window_s < shortest_window_s) {
        if (r == 0) throw_too_short(rounds);
        break;  // the rounds before stand
      }
      left.resize(std::min(left.size(), rounds[r]));
      run_round(r, rounds, left, window_s);
      std::stable_sort(left.begin(), left.end(), [&](std::size_t a, std::size_t b) {
        return points_[a].rate().value > points_[b].rate().value;
      });
      while (!left.empty() && points_[left.back()].rate().value == 0) left.pop_back();
      if (left.empty()) throw_all_failed();
    }
    best_ = left;
    best_.resize(std::min(best_.size(), finalists));
  }

  double elapsed_s() const { return stopwatch_.elapsed_s(); }
  const std::vector<std::size_t>& best() const { return best_; }
  const SweepIndex& all() const { return all_; }
  const std::vector<TunedPoint>& points() const { return points_; }
  const std::string& unit() const { return unit_; }

 private:
  /// The runs of round `r`.
  double runs_of(const std::vector<std::size_t>& rounds, std::size_t r) const {
    return static_cast<double>(rounds[r] * repeats_of(rounds, r));
  }
  std::size_t repeats_of(const std::vector<std::size_t>& rounds, std::size_t r) const {
    return r + 1 == rounds.size() ? final_repeats_ : 1;
  }

  /// The time that all runs from round `r` on take besides their windows.
  double cost_from(const std::vector<std::size_t>& rounds, std::size_t r) const {
    double runs = 0;
    for (std::size_t i = r; i < rounds.size(); ++i) runs += runs_of(rounds, i);
    return runs * cost_s_;
  }

  /// The window of each run of round `r`: what the rounds that are left may measure is shared
  /// equally among them.
  double window_of(const std::vector<std::size_t>& rounds, std::size_t r) const {
    const double measured_s = seconds_ - elapsed_s() - cost_from(rounds, r);
    return measured_s / static_cast<double>(rounds.size() - r) / runs_of(rounds, r);
  }

  [[noreturn]] void throw_too_short(const std::vector<std::size_t>& rounds) const {
    double longest_round = 0;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      longest_round = std::max(longest_round, runs_of(rounds, i));
    }
    const double needed_s = cost_from(rounds, 0) +
                            longest_round * shortest_window_s * static_cast<double>(rounds.size());
    throw UserError(
        fmt::format("--tune {:g} is too short for two rounds", seconds_),
        fmt::format("{}, and a run takes {:.1f} s besides its window",
                    plural(all_.points.size(), "configuration"), cost_s_),
        fmt::format("Give {:.0f} or more, or fix some of --ranks, --threads-per-rank and "
                    "--micro-batch",
                    std::ceil(needed_s + 1)));
  }

  [[noreturn]] void throw_all_failed() const {
    const auto why = std::ranges::find_if(
        points_, [](const TunedPoint& point) { return !point.failed.empty(); });
    throw Error(ErrorKind::run_failed,
                {{"no configuration could be measured", why == points_.end() ? "" : why->failed,
                  fmt::format("The output of every run is in {}", folder_.string())}});
  }

  void run_round(std::size_t r, const std::vector<std::size_t>& rounds,
                 const std::vector<std::size_t>& left, double window_s) {
    SweepIndex round = all_;
    round.sweep_id += fmt::format("-{}", r + 1);
    for (const auto& word :
         {std::string("--set"), fmt::format("measure.duration_s={:.2f}", window_s)})
      round.command.push_back(word);
    round.repeats = repeats_of(rounds, r);
    round.points.clear();
    for (const std::size_t point : left) round.points.push_back(all_.points[point]);
    round.runs = there_and_back(round);
    SweepProgram program = this_program(round, request_, options_);
    program.say(fmt::format("round {} of {}: {}, {:.1f} s each{}", r + 1, rounds.size(),
                            plural(left.size(), "configuration"), window_s,
                            round.repeats > 1 ? ", forth and back" : ""));
    program.command = [&, begin = program.command](const SweepRun& run, const fs::path& home) {
      if (r == 0 && elapsed_s() > seconds_) {
        cost_s_ = elapsed_s() / static_cast<double>(run.number - 1);
        throw_too_short(rounds);
      }
      return begin(run, home);
    };
    program.deadline_s = std::min(request_.deadline_s, seconds_);
    program.way_on = fmt::format("What was measured is in {}. Begin again.", folder_.string());
    const fs::path home = folder_ / fmt::format("round-{}", r + 1);
    const SweepIndex done = run_sweep(home, round, program);
    std::vector<double> costs;
    for (const std::size_t point : left) ++points_[point].rounds;
    for (const SweepRun& run : done.runs) take(run, home, points_[left[run.point]], costs);
    if (!costs.empty()) cost_s_ = median(costs);
  }

  /// Adds what a run has measured to its configuration.
  void take(const SweepRun& run, const fs::path& home, TunedPoint& point,
            std::vector<double>& costs) {
    if (run.state != SweepRunState::complete) {
      point.failed = run.reason;
      return;
    }
    const RunDigest digest = find_runs({home / run.folder}).runs.at(0);
    // The models of a search differ from trial to trial, and so does what an image costs.
    const char* metric = digest.samples_per_step ? "throughput" : "ops_per_second";
    const auto rate = digest.number(metric), window_s = digest.number("window_s");
    if (!rate || !window_s || !(*rate > 0)) {
      point.failed = "its window has no step";
      return;
    }
    unit_ = digest.unit_of(record_metrics()[metric_place(metric)]);
    point.rates.push_back(*rate);
    point.window_s += *window_s;
    costs.push_back(std::max(0.0, run.seconds - *window_s));
  }

  SweepIndex all_;
  double seconds_;
  fs::path folder_;
  const SweepRequest& request_;
  const GlobalOptions& options_;
  std::vector<TunedPoint> points_;
  std::vector<std::size_t> best_;
  std::string unit_;
  double cost_s_ = usual_cost_s;
  std::size_t final_repeats_ = 2;
  Stopwatch stopwatch_;
};

Table table_of_points(const Tuning& tuning, const std::vector<std::size_t>& places,
                      const std::string& key, Audience audience) {
  Table table{.key = key, .audience = audience};
  for (const std::size_t place : places) {
    const TunedPoint& point = tuning.points()[place];
    std::vector<TableCell> cells;
    for (const auto& [path, value] : tuning.all().points[place]) {
      cells.push_back({path, path.substr(path.rfind('.') + 1), Unit::none, value});
    }
    const RepeatedRate rate = point.rate();
    Datum value, interval;
    if (rate.value > 0) value = Datum(rate.value).as(with_prefix(rate.value, tuning.unit()));
    if (rate.ci95) {
      interval = Datum(*rate.ci95)
                     .as(fmt::format("{} to {}", with_prefix(rate.ci95->low, tuning.unit()),
                                     with_prefix(rate.ci95->high, tuning.unit())));
    }
    cells.push_back({"rate", "rate", Unit::work_per_second, std::move(value)});
    cells.push_back({"ci95", "95 % interval", Unit::work_per_second, std::move(interval)});
    cells.push_back({"window_s", "measured", Unit::seconds, point.window_s});
    cells.push_back({"rounds", "rounds", Unit::count, point.rounds, Audience::programs});
    cells.push_back({"runs", "runs", Unit::count, point.rates.size()});
    cells.push_back({"failed", "failed", Unit::none, point.failed});
    table.add_cells(std::move(cells));
  }
  return table;
}

/// The command of the best configuration, with all that the user asked for.
std::string best_command(const Tuning& tuning, const SweepRequest& request, const UntunedRun& run) {
  std::vector<Setting> settings = request.settings;
  for (const auto& [path, value] : tuning.all().points[tuning.best().front()]) {
    settings.push_back({path, value});
  }
  ProblemList checked_before;
  RunConfig config =
      apply_settings(request.quick ? quick_config() : RunConfig{}, settings, checked_before);
  config.workload = run.config.workload;
  config.model.size = run.prepared.workload.size;
  return "heteroperf" + run_words(config);
}

Document tuning_document(const Tuning& tuning, const fs::path& folder, double seconds,
                         const std::string& workload, const std::string& command) {
  Document document{"heteroperf-tuning"};
  document.field("workload", "workload", Unit::none, workload);
  document.data("asked_s", "time asked for", Unit::seconds, seconds);
  document.field("took_s", "took", Unit::seconds, tuning.elapsed_s());
  document.field("folder", "folder", Unit::none, folder.string());
  document.data("unit", "what a rate counts", Unit::none, tuning.unit());
  document.table(table_of_points(tuning, tuning.best(), "best", Audience::everyone));
  std::vector<std::size_t> all(tuning.points().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  document.table(table_of_points(tuning, all, "configurations", Audience::programs));
  document.field("command", "command", Unit::none, command);
  return document;
}

}  // namespace

ExitCode launch_tuning(const SweepRequest& request, double seconds, const GlobalOptions& options) {
  ProblemList problems;
  check_request(request, seconds, problems);
  problems.throw_if_any();
  check_axes(request);
  const UntunedRun untuned = untuned_run(request);
  const SweepIndex all = all_configurations(request, untuned);
  const fs::path folder = request.out.empty()
                              ? fs::path("results") / ("tune" + all.sweep_id.substr(5))
                              : fs::path(request.out);
  install_stop_signals([] {});
  create_run_folder(folder);
  Tuning tuning(all, request, seconds, folder, options);
  tuning.run();
  const Document document = tuning_document(tuning, folder, seconds, untuned.prepared.workload.name,
                                            best_command(tuning, request, untuned));
  write_file_atomically(folder / "tuning.json", json_text(document));
  print(document, options);
  return ExitCode::ok;
}

}  // namespace heteroperf
