// Were these losses really trained?
//
// Everything else that a journal says is recomputed from its own lines, but a loss curve can only
// be had by training, so somebody who invents one has nothing to fear from sums and hashes. A
// replay therefore trains some of the steps once more. It starts this program as the run was
// started, from the configuration and seed that its journal holds, and ends it after so many
// steps; what the new journal says of these steps must be what the old one says.
//
// The first steps alone would leave the rest of the curve to imagination, so half of the steps are
// taken behind the last checkpoint that the run has gone on from.
//
// A search of several groups does not repeat itself: what is proposed, and who passes a rung,
// depends on whose outcome comes first, and a replay that ends early has other outcomes. Only the
// trials that were proposed before any outcome, until their first rung, are the seed's alone, and
// only these are trained again.
//
// Another processor, other kernels or another version of the program round otherwise. Then a loss
// may lie within a band of the journal's, and where one lies outside, the steps are trained a third
// time from values moved by as much as rounding may: that shows how far rounding alone carries this
// training, and from which step on nothing can be held against it.
#include "suite/verification/run_checks.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "metrics/base/cache_folder.hpp"
#include "metrics/base/error.hpp"
#include "results/comparison/journal_memory.hpp"
#include "results/comparison/run_evidence.hpp"
#include "results/record/run_folder.hpp"
#include "runners/cluster/shared_module.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"
#include "suite/config/placement.hpp"
#include "suite/config/reproduce.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/program/exit_code.hpp"
#include "suite/program/shell_command.hpp"
#include "suite/program/signals.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// A step within its trial, or within the run where there are none.
using StepKey = std::pair<std::optional<std::uint64_t>, std::uint64_t>;
using Steps = std::map<StepKey, const StepEvent*>;

/// A run, or a stretch of one as it was trained here.
struct TrainedRun {
  explicit TrainedRun(const RunFiles& files)
      : folder(files.folder),
        journal(read_journal(files.journal().string())),
        digest(read_run_digest(files.record())) {
    for (const StepEvent* step : journal.all<StepEvent>()) steps[{step->trial, step->n}] = step;
  }

  const WorkloadEvent& workload() const { return *journal.first<WorkloadEvent>(); }

  fs::path folder;
  Journal journal;
  RunDigest digest;
  Steps steps;  ///< point to lines of the journal, which must stay where they are
};

/// The run whose losses are checked.
struct Original : TrainedRun {
  using TrainedRun::TrainedRun;

  RunConfig config;

  bool is_search() const { return workload().graph.text.empty(); }
  /// 1 of what is no search.
  int groups() const { return is_search() ? journal.last<ScaleEvent>()->groups : 1; }
  bool goes_on() const { return !journal.first<StartEvent>()->parent.empty(); }
};

[[noreturn]] void refuse(const Original& run, const std::string& why,
                         const std::string& suggestion = "") {
  throw Error(ErrorKind::environment,
              {{fmt::format("{} cannot be replayed here", run.digest.run_id), why, suggestion}});
}

Original read_original(const fs::path& folder) {
  Original run(open_run_folder(folder));
  const auto* config = run.journal.last<ConfigEvent>();
  if (config == nullptr || run.journal.first<WorkloadEvent>() == nullptr ||
      run.journal.first<ScaleEvent>() == nullptr || run.steps.empty()) {
    refuse(run, "it ended before its first step");
  }
  run.config = repeated_config(run.journal);
  return run;
}

void require_trainable(const Original& run) {
  ProblemList changed;
  add_changed_chips(run.journal, run.config.scale.device.names, changed);
  if (!changed.problems().empty()) throw Error(ErrorKind::environment, changed.problems());
  if (run.digest.emulated) refuse(run, "its devices are emulated: their times are no training's");
  const std::uint64_t here = static_cast<std::uint64_t>(usable_cores().count());
  // Who had more ranks than cores may have so here.
  const std::uint64_t cores = run.digest.cores > 0 ? run.digest.cores : run.digest.ranks;
  const std::uint64_t wanted = std::min(run.digest.ranks, cores);
  if (wanted > here) {
    refuse(run,
           fmt::format("its {} ranks had {} cores, and this machine has {}", run.digest.ranks,
                       cores, here),
           "Replay it on a machine of that size.");
  }
}

/// Steps one after another that are trained again.
struct ReplayedSteps {
  std::optional<std::uint64_t> checkpoint;  ///< steps done in it; absent: from the first step
  std::uint64_t steps = 0;

  std::string name() const {
    const std::uint64_t first = checkpoint.value_or(0);
    return fmt::format("replay of steps {} to {}", first, first + steps - 1);
  }
};

/// The newest checkpoint that was trained on from.
std::optional<std::uint64_t> checkpoint_to_go_on(const Original& run) {
  if (run.is_search()) return std::nullopt;
  const std::uint64_t done = run.steps.rbegin()->first.second + 1;
  for (const CheckpointPlace& place : list_checkpoints(run.folder)) {
    if (place.step < done) return place.step;
  }
  return std::nullopt;
}

std::vector<ReplayedSteps> stretches_of(const Original& run, std::uint64_t steps) {
  if (run.groups() > 1) steps = std::min(steps, run.config.automl.first_rung_steps);
  const auto checkpoint = checkpoint_to_go_on(run);
  if (run.goes_on() && !checkpoint) {
    refuse(run,
           "its first step goes on from another run, and no checkpoint of its own has steps "
           "behind it");
  }
  std::vector<ReplayedSteps> all;
  // A run that was resumed has no first steps of its own, so all steps are taken behind its
  // checkpoint.
  std::uint64_t later = 0;
  if (checkpoint) {
    const std::uint64_t behind = run.steps.rbegin()->first.second + 1 - *checkpoint;
    later = std::min(run.goes_on() ? steps : steps / 2, behind);
  }
  const std::uint64_t first = std::min<std::uint64_t>(steps - later, run.steps.size());
  if (!run.goes_on() && first > 0) all.push_back({std::nullopt, first});
  if (later > 0) all.push_back({checkpoint, later});
  return all;
}

/// A training begins with the run's values, or with those moved by as much as rounding may.
enum class Values { recorded, moved };

/// The words after the program that train a stretch.
std::string training_words(const Original& run, const ReplayedSteps& stretch, Values values) {
  std::string words;
  if (stretch.checkpoint) {
    words = fmt::format(
        " resume {} --from-step {} --set checkpoint.every_steps=0 --set checkpoint.every_s=0"
        " --set checkpoint.at_end=false --set adapt.every_steps=0",
        shell_quoted(run.folder.string()), *stretch.checkpoint);
  } else {
    RunConfig config = run.config;
    config.trace.clear();
    config.rank_logs = config.with_baselines = false;
    config.checkpoint = {};
    config.adapt = {};
    config.measure.until_percent = {};
    config.measure.until_after_s = MeasureConfig{}.until_after_s;
    const fs::path plan = RunFiles{run.folder}.plan();
    if (!config.plan.file.empty() && fs::exists(plan)) {
      config.plan.file = fs::absolute(plan).string();
    }
    words = run_words(config);
  }
  return words + fmt::format(
                     " --set measure.replay_steps={} --set measure.replay_moved={}"
                     " --set measure.peak_s=0",
                     stretch.steps, values == Values::moved);
}

/// Takes away the settings of this process, which the run did not have.
std::string environment_words() {
  constexpr std::string_view settings_prefix = "HETEROPERF_", modules = "HETEROPERF_MODULE_PATH";
  // Variables of this process would change the run; "_" only gives the command a name to unset.
  std::string words = "unset -v _";
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view setting(*entry);
    const std::string_view name = setting.substr(0, setting.find('='));
    if (name.starts_with(settings_prefix) && name != modules) words += fmt::format(" {}", name);
  }
  words += fmt::format("; {}={} ", parent_variable, getpid());
  return words;
}

// The seconds that the run itself took for these steps give the deadline its scale.
double recorded_s(const Original& run, const ReplayedSteps& stretch) {
  const std::uint64_t first = stretch.checkpoint.value_or(0);
  double seconds = 0;
  for (const auto& [key, step] : run.steps) {
    if (key.second < first || key.second >= first + stretch.steps) continue;
    seconds += static_cast<double>(step->t_end_ns - step->t_start_ns) * 1e-9;
  }
  return seconds;
}

/// False where this machine kept it from training on: a full disk, or no memory.
bool trained_to_its_end(const fs::path& folder) {
  const RunFiles files{folder};
  if (!fs::exists(files.journal()) || !fs::exists(files.record())) return false;
  const Journal journal = read_journal(files.journal().string());
  const auto* stop = journal.last<StopEvent>();
  if (stop == nullptr || stop->status != RunStatus::failed) return stop != nullptr;
  const auto* last = journal.last<StepEvent>();  // one that diverges fails as the run did
  return last != nullptr && !(std::isfinite(last->loss) && std::isfinite(last->gradient_norm));
}

void require_same_data(const Original& run, const WorkloadEvent& again) {
  if (again.data_fingerprint == run.workload().data_fingerprint) return;
  refuse(run, fmt::format("its data are not those of {}", run.workload().data),
         "Put them where its configuration says: data.source.");
}

TrainedRun train_again(const Original& run, const ReplayedSteps& stretch, Values values) {
  constexpr double start_s = 300, slower_machine = 50;
  const PrivateFolder place("replay-");
  const fs::path& home = place.path();
  const fs::path folder = home / "run";
  ShellCommand command;
  command.line = environment_words() + "exec " + shell_quoted(program_path().string()) +
                 training_words(run, stretch, values) + " --no-color -q --out " +
                 shell_quoted(folder.string());
  command.out = home / "out";
  command.err = home / "err";
  command.deadline_s = start_s + slower_machine * recorded_s(run, stretch);
  command.orphan = OrphanFate::ends;
  const CommandOutcome outcome = run_shell_command(command);
  if (outcome.end == CommandEnd::interrupted) {
    throw Error(ErrorKind::interrupted, {{"the replay was stopped", "", ""}});
  }
  if (outcome.end == CommandEnd::timed_out) {
    throw Error(
        ErrorKind::timeout,
        {{fmt::format("the {} did not end within {:.0f} s", stretch.name(), command.deadline_s),
          last_words(command.err, outcome), "Replay fewer steps."}});
  }
  const auto is = [&](ExitCode code) { return outcome.exit_code == static_cast<int>(code); };
  // A replay ends as if interrupted, and breaks the rules for being short: both are expected.
  const bool trained = is(ExitCode::ok) || is(ExitCode::interrupted) ||
                       is(ExitCode::invalid_result) || is(ExitCode::run_failed);
  if (!trained || !trained_to_its_end(folder)) {
    std::error_code unknown;
    const bool silent = fs::file_size(command.err, unknown) == 0;
    refuse(run, last_words(command.err, outcome),
           silent ? fmt::format("It needs room in {}, or where XDG_CACHE_HOME says.",
                                home.parent_path().string())
                  : "");
  }
  TrainedRun again(RunFiles{folder});
  if (again.journal.first<WorkloadEvent>() == nullptr) refuse(run, "it does not begin here");
  require_same_data(run, again.workload());
  return again;
}

/// Why losses of the two need not agree in every bit; empty: they must.
std::string why_rounded(const RunDigest& run, const RunDigest& again) {
  if (run.git_commit != again.git_commit || run.program_version != again.program_version) {
    return fmt::format("of commit {}", run.git_commit);
  }
  const auto variables_of = [](const RunDigest& digest) {
    std::map<std::string, std::string> settings;
    for (const auto& [path, value] : digest.environment) {
      if (path.starts_with("/environment/")) settings[path] = value;
    }
    return settings;
  };
  if (variables_of(run) != variables_of(again)) return "other variables of kernels and libraries";
  RunPairs both;
  both.base.runs = {run};
  both.head.runs = {again};
  return why_losses_may_differ(both);
}

/// Tells how a step of the journal differs from the one that was trained again; nothing where it
/// agrees.
std::optional<std::string> difference(const StepEvent& said, const StepEvent& again, double band) {
  if (said.samples != again.samples) {
    return fmt::format("{} samples, trained {}", said.samples, again.samples);
  }
  if (said.ops_strict != again.ops_strict) {
    return fmt::format("{} operations, trained {}", said.ops_strict.to_string(),
                       again.ops_strict.to_string());
  }
  const bool same = band > 0 ? std::fabs(again.loss - said.loss) <= band * std::fabs(said.loss)
                             : again.loss == said.loss;
  // Not finite where it was not finite.
  if (same || (!std::isfinite(said.loss) && !std::isfinite(again.loss))) return std::nullopt;
  return fmt::format("loss {}, trained {}", said.loss, again.loss);
}

/// By so much, relative to it, a loss may differ from that of another processor, other kernels or
/// another version of the program.
double replay_band(const std::string& precision) {
  if (precision == "bf16") return 5e-3;
  return precision == "fp64" ? 1e-9 : 1e-3;
}

/// Trials that were proposed before any had an outcome.
std::set<std::uint64_t> first_trials(const Journal& journal) {
  std::set<std::uint64_t> trials;
  for (const TrialEvent* trial : journal.all<TrialEvent>()) {
    if (trial->state != TrialStatus::running) break;
    trials.insert(trial->id);
  }
  return trials;
}

/// Leaves out what depends on the order of outcomes, and what the run had no time for.
Steps without_order(Steps steps, const Original& run, const Journal& again) {
  const std::set<std::uint64_t> here = first_trials(again), there = first_trials(run.journal);
  std::erase_if(steps, [&](const auto& step) {
    const auto& [trial, n] = step.first;
    if (!trial || !here.contains(*trial) || !there.contains(*trial)) return true;
    const auto next = run.steps.lower_bound(step.first);
    return n >= run.config.automl.first_rung_steps || next == run.steps.end() ||
           next->first.first != trial;
  });
  if (steps.empty()) {
    refuse(run,
           fmt::format("all that its {} groups trained depends on which was first", run.groups()));
  }
  return steps;
}

/// Returns how far each step's loss, relative to it, may lie from the journal's. A training may be
/// chaotic (in a residual net at its first learning rates a rounding grows up to a hundredfold from
/// one step to the next), until nothing can be told from a loss. `moved` shows how far it has come:
/// the same training from values moved by as much as rounding may. Other kernels may be two steps
/// ahead of it: where one pixel of a pooling or one sign before a ReLU comes out otherwise, a loss
/// was seen to part by two hundred times as much.
std::map<StepKey, double> bands_of(const TrainedRun& again, const TrainedRun* moved, double fixed) {
  constexpr double other_roundings = 10;  // other kernels round more than once
  constexpr std::uint64_t most_ahead = 2;
  std::map<StepKey, double> bands;
  std::map<std::optional<std::uint64_t>, double> spreads;  // so far, of each training
  for (const auto& [key, step] : again.steps) {
    double& spread = spreads[key.first];
    if (moved != nullptr) {
      const auto moved_step = moved->steps.find(key);
      const double apart = moved_step == moved->steps.end()
                               ? std::numeric_limits<double>::infinity()
                               : std::fabs(moved_step->second->loss - step->loss);
      const double relative = apart / std::fabs(step->loss);
      spread = std::max(spread, std::isnan(relative) ? 0 : relative);
    }
    const double band = fixed + other_roundings * spread;
    bands[key] = band;
    for (std::uint64_t ahead = 1; ahead <= std::min(most_ahead, key.second); ++ahead) {
      const auto before = bands.find({key.first, key.second - ahead});
      // The first loss is of values that no step has changed: nothing has grown.
      const bool has_grown = before != bands.end() && before != bands.begin() &&
                             std::prev(before)->first.first == key.first;
      if (has_grown) before->second = band;
    }
  }
  return bands;
}

/// Losses that were trained again and are held to the journal's.
struct Comparison {
  const Original& run;
  const ReplayedSteps& stretch;
  const TrainedRun& again;
  std::string why;  ///< they may be rounded otherwise; empty: they may not

  VerifyCheck check(const TrainedRun* moved) const {
    VerifyCheck check{stretch.name(), true, "", "", CheckText::words};
    Steps steps = again.steps;
    // Another outcome of a trial makes other trials.
    const bool ordered = run.groups() > 1 || (run.is_search() && !why.empty());
    if (ordered && !steps.empty()) steps = without_order(std::move(steps), run, again.journal);
    const double fixed = why.empty() ? 0 : replay_band(run.workload().precision);
    const std::map<StepKey, double> bands = bands_of(again, moved, fixed);
    const std::size_t count = steps.size();
    const double widest = 10 * fixed;  // beyond it a loss says nothing
    if (fixed > 0) {
      std::erase_if(steps, [&](const auto& step) { return bands.at(step.first) > widest; });
      if (steps.empty() && count > 0) {
        refuse(run,
               fmt::format("rounding alone makes over {:g} % of each of its losses, which were {}",
                           100 * widest, why),
               "Replay it with its own program, on a processor as its own.");
      }
    }
    check.expected = fmt::format("{} loss{}", steps.size(), steps.size() == 1 ? "" : "es");
    if (ordered) {
      check.expected +=
          fmt::format(" before the first rung (the rest depends on {})",
                      run.groups() > 1 ? fmt::format("which of {} groups was first", run.groups())
                                       : "its outcome");
    }
    check.expected += fixed > 0 ? fmt::format(" within {} ({})", range(steps, bands), why)
                                : ", equal in every bit";
    if (steps.size() < count) {
      check.expected += fmt::format("; of {} more, rounding alone makes over {:g} %",
                                    count - steps.size(), 100 * widest);
    }
    const std::string wrong = first_wrong(steps, count, bands);
    check.ok = wrong.empty();
    // A check that passes has found what it expected.
    check.actual = check.ok ? check.expected : wrong;
    return check;
  }

 private:
  static std::string range(const Steps& steps, const std::map<StepKey, double>& bands) {
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (const auto& [key, step] : steps) {
      least = std::min(least, bands.at(key));
      most = std::max(most, bands.at(key));
    }
    const std::string from = fmt::format("{:.3g}", 100 * least);
    const std::string to = fmt::format("{:.3g}", 100 * most);
    return from == to ? from + " %" : fmt::format("{} to {} %", from, to);
  }

  std::string first_wrong(const Steps& steps, std::size_t count,
                          const std::map<StepKey, double>& bands) const {
    if (again.workload().graph_hash != run.workload().graph_hash) {
      if (!why.empty()) refuse(run, "this program makes another graph of its configuration");
      return "its configuration gives another graph than the journal's";
    }
    // Other roundings may also make it diverge, where nothing can be told from its losses.
    const bool chaotic = steps.size() < count;
    if (count == 0 || (!run.is_search() && !chaotic && count < stretch.steps)) {
      return fmt::format("only {} of {} steps could be trained", count, stretch.steps);
    }
    for (const auto& [key, step] : steps) {
      const std::string name = key.first ? fmt::format("trial {}, step {}", *key.first, key.second)
                                         : fmt::format("step {}", key.second);
      const auto said = run.steps.find(key);
      if (said == run.steps.end()) return name + " is not in the journal";
      if (const auto what = difference(*said->second, *step, why.empty() ? 0 : bands.at(key))) {
        return fmt::format("{}: {}", name, *what);
      }
    }
    return {};
  }
};

VerifyCheck replay(const Original& run, const ReplayedSteps& stretch) {
  const TrainedRun again = train_again(run, stretch, Values::recorded);
  const Comparison comparison{run, stretch, again, why_rounded(run.digest, again.digest)};
  const VerifyCheck check = comparison.check(nullptr);
  if (check.ok || comparison.why.empty()) return check;
  // Only a difference makes the third training necessary.
  const TrainedRun moved = train_again(run, stretch, Values::moved);
  return comparison.check(&moved);
}

}  // namespace

std::vector<VerifyCheck> replay_run(const fs::path& folder, std::uint64_t steps) {
  const Original run = read_original(folder);
  require_trainable(run);
  install_stop_signals([] {});
  std::vector<VerifyCheck> checks;
  for (const ReplayedSteps& stretch : stretches_of(run, steps)) {
    checks.push_back(replay(run, stretch));
  }
  const bool ok =
      std::all_of(checks.begin(), checks.end(), [](const VerifyCheck& check) { return check.ok; });
  if (ok) keep_finding(JournalFinding::replay, run.journal.sha256, fmt::format("{}", steps));
  return checks;
}

}  // namespace heteroperf
