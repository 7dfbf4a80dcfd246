// Turns one `run` command into ranks (ranks/rank_session.hpp) and their results. Where the ranks
// are threads, the runs are prepared once before there are any; ranks of a launcher's world prepare
// them each for itself; and where this process only starts mpirun, it checks them.
//
// A command runs one workload or, as a *suite*, several in a row, each in a folder of its own with
// a journal and a record; suite.json sums them up and is rewritten after every run, so that a suite
// that breaks off still has a valid index. All output lies in RunOutput, which exists on rank 0
// alone. Whatever ends a run, its record is made from the journal as far as that goes.
#include "suite/run/launch.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <span>

#include "results/exports/run_export.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/suite_record.hpp"
#include "results/sweep/sweep_index.hpp"
#include "suite/config/reproduce.hpp"
#include "suite/program/signals.hpp"
#include "suite/ranks/rank_session.hpp"
#include "suite/run/prepare.hpp"

namespace heteroperf {
namespace {

constexpr double counted_duration_s = 300;  // the shortest that rules call closed

/// The journal that the last words of an impatient user's interrupt save. A mutex needs no
/// destructor, so the thread of these words may lock it whenever the process ends.
std::mutex open_journal_mutex;
JournalWriter* open_journal = nullptr;

void set_open_journal(JournalWriter* journal) {
  const std::lock_guard lock(open_journal_mutex);
  open_journal = journal;
}

void flush_open_journal() {
  const std::lock_guard lock(open_journal_mutex);
  if (open_journal != nullptr) open_journal->flush_now();
}

/// An empty text means that such runs can stop between any two steps.
std::string why_not_by_steps(const std::vector<PreparedRun>& runs) {
  if (runs.size() > 1) return "a suite runs one workload after another";
  const PreparedRun& run = runs.front();
  if (!run.plan) return run.workload.name + " is a search, which has no steps of its own";
  if (run.plan->emulated) return "emulated devices follow a clock that does not stand still";
  if (run.config.adapt.every_steps > 0) return "--adapt chooses plans by the times of steps";
  if (run.config.with_baselines) return "--with-baselines runs other trainings after it";
  return "";
}

/// Where the runs of one command go, and what was printed of them. Lives on rank 0 alone.
class RunOutput {
 public:
  /// `turns`: of a run in lockstep, else null.
  RunOutput(const RunConfig& config, const RunIdentity& identity, const GlobalOptions& options,
            const std::vector<PreparedRun>& runs, TurnTaker* turns)
      : config_(config), identity_(identity), options_(options), turns_(turns) {
    if (turns_ != nullptr) {
      if (const std::string why = why_not_by_steps(runs); !why.empty()) turns_->refuse(why);
    }
    if (runs.size() < 2) return;
    const RunName name = make_run_name("suite");
    // One workload needs no suite: its run folder is what the user named.
    suite_ = {name.run_id, name.created_utc, {}};
    for (const PreparedRun& run : runs) suite_.workloads.push_back(run.workload.name);
    const std::filesystem::path folder = config.out.empty()
                                             ? std::filesystem::path("results") / name.run_id
                                             : std::filesystem::path(config.out);
    suite_folder_ = create_run_folder(folder).folder;
    write_suite_record(suite_folder_, suite_);
    point_latest(suite_folder_);
  }

  /// Opens the next run's folder and journal.
  FirstRank begin(const PreparedRun& run, const std::string& libtorch_version,
                  ProgressLine& progress) {
    const std::filesystem::path folder = suite_folder_.empty() ? std::filesystem::path(config_.out)
                                                               : suite_folder_ / run.workload.name;
    RunIdentity identity{identity_.argv, run.reproduce, {}, identity_.sweep};
    if (!suite_folder_.empty()) identity.suite = suite_;
    recorder_ = std::make_unique<RunRecorder>(config_, identity, run.workload.name, folder, turns_);
    if (suite_folder_.empty()) point_latest(recorder_->files().folder);
    set_open_journal(&recorder_->journal());
    tell_foreseen(recorder_->describe(run, libtorch_version));
    return recorder_->first_rank(&progress, turns_);
  }

  /// Makes the record; prints it unless it is part of a suite's one document.
  ExitCode end(const ProgramEnd& end) {
    set_open_journal(nullptr);
    if (end.failed) fmt::print(stderr, "heteroperf: {}\n", end.reason);
    const auto [status, code] = end.interrupted
                                    ? std::pair(RunStatus::partial, ExitCode::interrupted)
                                : end.failed ? std::pair(RunStatus::failed, ExitCode::run_failed)
                                             : std::pair(RunStatus::complete, ExitCode::ok);
    const FinishedRun finished =
        recorder_->finish(status, end.reason, static_cast<std::int32_t>(code));
    for (const std::string& warning : finished.warnings) {
      fmt::print(stderr, "heteroperf: warning: {}\n", warning);
    }
    if (!suite_folder_.empty()) write_suite_record(suite_folder_, suite_);
    if (suite_folder_.empty() || !options_.json) print(finished.record, recorder_->files().folder);
    if (suite_folder_.empty() && status == RunStatus::complete) {
      print_next(recorder_->files().folder);
    }
    // A run that went through but broke a rule that makes it invalid is no success.
    const auto record = nlohmann::json::parse(finished.record);
    const bool invalid =
        record.contains("validity") && record["validity"].value("class", "") == "invalid";
    return code == ExitCode::ok && invalid ? ExitCode::invalid_result : code;
  }

  /// A failure: the record of the run that was open is made from what its journal holds, and the
  /// suite's from the records there are.
  void fail(const Error& error) noexcept {
    set_open_journal(nullptr);
    // An error before the first run began leaves nothing to finish.
    const bool open = recorder_ != nullptr && !recorder_->finished();
    if (!open && suite_folder_.empty()) return;
    const std::string folder =
        (suite_folder_.empty() ? recorder_->files().folder : suite_folder_).string();
    try {
      if (open) {
        const bool stopped = error.kind() == ErrorKind::interrupted;
        recorder_->finish(stopped ? RunStatus::partial : RunStatus::failed, error.what(),
                          static_cast<std::int32_t>(exit_code_of(error.kind())));
      }
      if (!suite_folder_.empty()) write_suite_record(suite_folder_, suite_);
      fmt::print(stderr, "heteroperf: what was measured is in {}\n", folder);
    } catch (const std::exception& second) {
      if (open) recorder_->flush();
      fmt::print(stderr,
                 "heteroperf: the record could not be written ({}). Try `heteroperf recover {}`\n",
                 second.what(), folder);
    }
  }

  /// suite.json and its table, also of a suite that ends early.
  void close_suite() {
    if (suite_folder_.empty()) return;
    const std::string text = write_suite_record(suite_folder_, suite_);
    if (options_.json) {
      fmt::print("{}", text);
    } else {
      fmt::print("{}", show(suite_folder_, DocumentForm::console, style_of(options_)));
      print_next(suite_folder_);
    }
  }

 private:
  /// Before time is spent on a run that cannot be ranked.
  void tell_foreseen(const Validity& foreseen) const {
    if (foreseen.reasons.empty() || options_.verbosity == Verbosity::quiet) return;
    std::string reasons;
    for (const Reason& reason : foreseen.reasons) {
      reasons += fmt::format("{}{} ({}, not {})", reasons.empty() ? "" : "; ", reason.rule,
                             reason.actual, reason.expected);
    }
    fmt::print(stderr, "heteroperf: this run will be {} at best, and not ranked: {}\n",
               to_string(foreseen.severity), reasons);
  }

  /// Only beside folders that this program names: what is beside --out is the user's.
  void point_latest(const std::filesystem::path& folder) const {
    if (config_.out.empty()) point_latest_at(folder);
  }

  void print(const std::string& record, const std::filesystem::path& folder) const {
    fmt::print("{}", show_record(record, folder.string(),
                                 options_.json ? DocumentForm::json : DocumentForm::console,
                                 style_of(options_)));
    std::fflush(stdout);
  }

  /// After a quick run, which newcomers begin with: what they do next, ready to paste.
  void print_next(const std::filesystem::path& folder) const {
    if (!config_.quick || options_.json) return;
    const std::string& program = identity_.argv.front();
    const std::string run = shell_quoted(folder.string());
    fmt::print("next         {0} verify {1}\n             {0} report {1}\n             {2}\n",
               shell_quoted(program), run, full_run_command(config_, program, counted_duration_s));
    std::fflush(stdout);
  }

  const RunConfig& config_;
  const RunIdentity& identity_;
  const GlobalOptions& options_;
  TurnTaker* turns_;
  SuitePlan suite_;
  std::filesystem::path suite_folder_;
  std::unique_ptr<RunRecorder> recorder_;
};

/// All runs of the command on this rank; `output` is rank 0's, else null.
ExitCode run_all(const std::vector<PreparedRun>& runs, Engine& engine, World& world,
                 RunOutput* output, const GlobalOptions& options) {
  ExitCode worst = ExitCode::ok;
  for (const PreparedRun& run : runs) {
    FirstRank first;
    std::optional<ProgressLine> progress;
    if (output != nullptr) {
      first = output->begin(run, engine.libtorch_version(), progress.emplace(options));
    }
    ProgramEnd end = run_workload(run, world, engine, first);
    // The classes run alone after the run itself, so that the run loses nothing where they fail.
    if (!end.interrupted && !end.failed) end = run_baselines(run, world, engine, first);
    if (output != nullptr) {
      progress->finish();
      const ExitCode code = output->end(end);
      if (code != ExitCode::ok) worst = code;
    }
    // A stop is meant for the whole command, and so is a failure: later workloads of a suite do not
    // begin.
    if (end.interrupted || end.failed) break;
  }
  if (output != nullptr) output->close_suite();
  return worst;
}

/// Adds what a chip lacks of the models' operators where the rules deny that the host computes it,
/// before anything is written. The calling thread computes on the chip.
void add_denied(const std::vector<PreparedRun>& runs, const RankDevice& device,
                const FallbackRules& rules, Engine& engine, ProblemList& problems) {
  const auto denies = [](const FallbackRules::Rule& rule) {
    return rule.decision == Fallback::deny;
  };
  if (!device.chip || device.chip->lacks.empty() || !std::ranges::any_of(rules.rules(), denies)) {
    return;
  }
  engine.use_device(device, FallbackRules::parse(to_string(Fallback::allow)));
  std::set<std::string> denied;
  for (const PreparedRun& run : runs) {
    ConformanceRequest asked;
    asked.precision = run.workload.precision;
    asked.quick = true;
    asked.compare = false;
    asked.workloads.push_back({std::make_shared<const ModelGraph>(run.workload.graph), 1});
    for (const OperatorVerdict& verdict : engine.check_operators(asked)) {
      for (const std::string& name : verdict.substituted) {
        if (rules.decision_for(name) == Fallback::deny) denied.insert(name);
      }
    }
  }
  engine.use_device(device, rules);
  for (const std::string& name : denied) {
    problems.add(fmt::format("{} has no {}", device.name, name),
                 "--fallback denies that the host computes it",
                 "Use --fallback warn, or another device");
  }
}

/// Gives ranks their devices. The ranks of this process are `count` from `first` on: LibTorch's
/// libraries are held to their instruction set, and their GPUs are named as the engine finds them.
/// Throws UserError for devices that cannot share a process, and SystemError with the reason why
/// there is no GPU where one is needed.
void find_devices(const ScaleConfig& config, Placement& placement, std::size_t first,
                  std::size_t count) {
  give_devices(config, placement);
  const auto mine = placement.devices.begin() + static_cast<std::ptrdiff_t>(first);
  limit_libraries({mine, mine + static_cast<std::ptrdiff_t>(count)});
  const std::span here = std::span(placement.bindings).subspan(first, count);
  const auto uses_gpu = [](const RankBinding& binding) { return binding.gpu.has_value(); };
  if (std::none_of(here.begin(), here.end(), uses_gpu)) return;
  const std::vector<CudaDevice> devices = load_engine()->cuda_devices();
  placement.devices_here = static_cast<int>(devices.size());
  for (RankBinding& binding : here) name_gpu(devices, binding);
}

/// The placement of a rank in a launcher's world, where every rank knows its own cores only:
/// collectives tell it who else shares the host, and give all ranks the bindings of all.
Placement place_among_ranks(const ScaleConfig& config, const UsableCores& cores,
                            const HostShare& share, Communicator& world) {
  Placement placement = choose_launched_placement(config, cores, world.size(), share);
  placement.bindings = gather_bindings(world, placement.bindings.front());
  RankBinding& binding = placement.bindings[world.rank().index()];
  // Each rank knows the GPUs of its own host alone.
  find_devices(config, placement, world.rank().index(), 1);
  if (config.uses_gpus()) placement.bindings = gather_bindings(world, binding);
  return placement;
}

/// Finds the place of this run in the sweep that started it; nothing where none did. Throws
/// UserError where sweep.json has no such run.
std::optional<SweepPlace> place_in_sweep(const std::filesystem::path& folder) {
  const char* number = std::getenv(sweep_run_variable);
  if (number == nullptr) return std::nullopt;
  const std::filesystem::path home = home_of(folder);
  const SweepIndex index = read_sweep(home);
  for (const SweepRun& run : index.runs) {
    const bool same = fmt::format("{}", run.number) == number && folder.filename() == run.folder;
    if (same) return place_of(index, run);
  }
  throw UserError(fmt::format("{}={} does not fit this run", sweep_run_variable, number),
                  fmt::format("the sweep in {} has no such run in {}", home.string(),
                              folder.filename().string()),
                  "Unset it: only `run --sweep` and --repeat set it, for each of their runs.");
}

}  // namespace

ExitCode launch_run(const RunConfig& given, const RunIdentity& command,
                    const GlobalOptions& options) {
  const UsableCores cores = usable_cores();
  const auto launched = detect_launcher();
  const int world_ranks = launched ? launched->size : 0;
  const PlanSources sources = read_plan_sources(given);
  RunConfig config = with_ranks(given, sources, cores.count(), world_ranks);
  Placement placement = choose_placement(config.scale, cores, world_ranks);
  end_with_parent();
  const RankSession session{placement.ranks, config.scale.transport, command.argv, config.comm};
  if (!launched && config.scale.transport != Transport::threads) {
    give_devices(config.scale, placement);
    // This process refuses all that can be seen without reading data; rank 0 refuses the rest.
    prepare_runs(config, sources, placement, placement.ranks, Reading::nothing);
    return start_ranks(session, {});
  }
  install_stop_signals(flush_open_journal);
  std::unique_ptr<TurnTaker> turns;
  RunIdentity identity = command;
  // Only the process that writes speaks with a gate and has a place in a sweep.
  const bool writes = !launched || launched->rank == 0;
  if (writes) {
    turns = TurnTaker::from_environment();
    identity.sweep = place_in_sweep(given.out);
  }
  if (launched && config.scale.transport != Transport::nccl)
    config.scale.transport = Transport::mpi;
  std::shared_ptr<Engine> engine;
  std::unique_ptr<RunOutput> output;
  std::vector<PreparedRun> runs;
  const auto prepare = [&](const Placement& placed, int ranks_on_host,
                           std::span<const RankDevice> devices) {
    runs = prepare_runs(config, sources, placed, ranks_on_host);
    engine = load_engine();
    const FallbackRules rules = FallbackRules::parse(config.engine.fallback);
    ProblemList problems;
    for (const RankDevice& device : devices) {
      collect_problems(problems, [&] { engine->use_device(device, rules); });
      if (problems.problems().empty()) add_denied(runs, device, rules, *engine, problems);
    }
    problems.throw_if_any();
    // Folders are made only when nothing can be refused any more.
    if (writes) {
      output = std::make_unique<RunOutput>(config, identity, options, runs, turns.get());
    }
  };
  if (!launched) {
    find_devices(config.scale, placement, 0, placement.bindings.size());
    prepare(placement, placement.ranks, placement.devices);
  }
  RankWork work;
  work.keep = [&](const Error& error) {
    if (output) output->fail(error);
    if (options.json) fmt::print("{}", error_report_text(error));
  };
  work.body = [&](World& world) {
    Communicator& all = *world.communicator;
    if (launched) {
      const HostShare share = share_of_host(all, cores);
      const Placement placed = place_among_ranks(config.scale, cores, share, all);
      prepare(placed, share.ranks_on_host,
              std::span(placed.devices).subspan(all.rank().index(), 1));
    }
    return run_all(runs, *engine, world, all.rank() == RankId(0) ? output.get() : nullptr, options);
  };
  return start_ranks(session, work);
}

}  // namespace heteroperf
