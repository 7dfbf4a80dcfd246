// The verb `probe`: writes a cluster file of the machine that it runs on, from measurements. It
// finds which ranks form a cluster by the bandwidth between them, measures every link and card,
// then the rates of each device, its memory, and the operations of models. Every part is a step
// that tells how far it is and can be stopped by a signal on any rank.
//
// Devices are measured all at once, because in a run they also compute at the same time and share
// caches, memory and clocks. GPUs over NCCL are a path of their own: their links are measured,
// their rates are not yet. Only operations take long; a time limit bounds them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "metrics/base/clock.hpp"
#include "results/text/number_text.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/comm/benchmark/operation_deadline.hpp"
#include "runners/comm/discovery/agglomeration.hpp"
#include "runners/comm/nccl/device_world.hpp"
#include "runners/engine/engine.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/probe/cluster_report.hpp"
#include "suite/probe/operation_measurement.hpp"
#include "suite/program/environment.hpp"
#include "suite/program/signals.hpp"
#include "suite/program/verb.hpp"
#include "suite/ranks/progress.hpp"
#include "suite/ranks/rank_session.hpp"
#include "suite/verbs/output_file.hpp"

namespace heteroperf {
namespace {

constexpr double peak_s = 0.3;       // seconds per precision
constexpr double link_pair_s = 0.2;  // about, for all sizes between two ranks of a host

/// Loads the engine. Returns null on every rank where one has none, and `why_not` then explains it
/// on that one.
std::shared_ptr<Engine> load_everywhere(Communicator& world, std::string& why_not) {
  std::shared_ptr<Engine> engine;
  try {
    engine = load_engine();
  } catch (const Error& error) {
    why_not = error.what();
  }
  std::int32_t missing = engine ? 0 : 1;
  world.all_reduce(std::span(&missing, 1), Reduction::max);
  return missing == 0 ? engine : nullptr;
}

/// Every precision on all ranks at once: cores share caches, memory and clock. The rate of
/// aten::mm, which the operators compute with; faster products are none of a plan's business.
std::map<std::string, OpsPerSecond> measure_rates(Communicator& world, Engine& engine,
                                                  int threads) {
  std::map<std::string, OpsPerSecond> rates;
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp64}) {
    world.barrier();
    // A barrier before each precision lets all ranks begin together.
    const FastestProduct product = engine.find_fastest_product(precision, threads, peak_s);
    rates[to_string(precision)] = OpsPerSecond(product.mm_ops_per_second);
  }
  return rates;
}

/// Shows which step a probe is in and how far it is, on rank 0; ends the probe where the user wants
/// that.
class ProbeSteps {
 public:
  ProbeSteps(Communicator& world, const GlobalOptions& options) : world_(world), line_(options) {}

  /// Collective: throws Error{interrupted} when a rank got a signal. `done`: 0…1 of this step.
  void at(const std::string& step, double done, const std::string& note = {}) {
    stop_if_asked(world_);
    if (world_.rank() != RankId(0)) return;
    // The time that is left is estimated within a step, since steps differ in length.
    if (step != step_) start_ns_ = now_ns();
    step_ = step;
    line_.update(
        {.phase = step, .fraction = done, .elapsed_s = seconds_since(start_ns_), .note = note});
  }
  void say(const std::string& text) {
    if (world_.rank() == RankId(0)) line_.say(text);
  }
  /// Ends the progress line, so that the next text on the terminal starts on a line of its own.
  void finish() { line_.finish(); }

 private:
  Communicator& world_;
  ProgressLine line_;
  std::string step_;
  std::int64_t start_ns_ = 0;
};

/// Reads the options and runs the parts of a probe on all ranks.
class ProbeVerb : public Verb {
 public:
  ProbeVerb()
      : Verb({"probe",
              "find clusters, measure every link and device, and write a cluster file",
              {"probe --ranks 4 -o cluster.json",
               "probe llm --size micro --precision fp32,bf16 --micro-batch 1,4 --json"},
              VerbRanks::all}) {}

  void declare(CLI::App& command) override {
    declare_operations(command);
    add_typed_option(command, "-o,--out", out_, "FILE",
                     "the cluster file to write (default: standard output)");
    command.add_option("--ranks", ranks_, "ranks to start (default: one per core)");
    command.add_option("--transport", transport_,
                       "threads, mpi or nccl (default: the launcher's, else threads)");
    command.add_option("--threads-per-rank", threads_per_rank_,
                       "of one device (default: usable cores of its host / ranks, as in a run)");
    command.add_option("--name", name_, "of the cluster");
    command.add_option("--gap", gap_, "ratio of bandwidths that parts two clusters");
    command.add_flag("--links-only", links_only_, "leave the devices' rates out");
    command.add_flag("--no-operations", no_operations_, "leave the rates of single operations out");
    command.footer(command.get_footer() + "\n" + config_keys_text("comm."));
  }

  ExitCode run(const GlobalOptions& options) override {
    ProblemList problems;
    // Options of a part that is left out would change nothing.
    if (asks_for_operations() && (links_only_ || no_operations_)) {
      problems.add(fmt::format("{} and operations to measure",
                               links_only_ ? "--links-only" : "--no-operations"),
                   "they are left out then", "Leave one of both out.");
    }
    if (ranks_ && *ranks_ < 1) {
      problems.add(fmt::format("--ranks {} is not usable", *ranks_), "must be positive",
                   "Leave it out for one per core.");
    }
    if (threads_per_rank_ && *threads_per_rank_ < 1) {
      problems.add(fmt::format("--threads-per-rank {} is not usable", *threads_per_rank_),
                   "must be positive", "Leave it out for what a run takes.");
    }
    operations_.check(problems);
    if (!(gap_ > 1))
      problems.add(fmt::format("--gap {:g} is not usable", gap_), "must be above 1", "Give 2.");
    RankSession session;
    session.comm = comm_config_of({}, options.sets, problems);
    session.transport = transport_named(transport_, problems);
    problems.throw_if_any();
    file_ = OutputFile(out_);
    session.ranks = ranks_.value_or(0);
    session.argv = original_argv();
    RankWork work;
    work.body = [&](World& world) {
      // Ends a measurement that does not come to its end after a signal.
      const OperationDeadline watch(*world.control, world.communicator->rank(),
                                    world.communicator->size(),
                                    [] { return stop_signal() != nullptr; });
      return session.transport == Transport::nccl ? probe_devices(world, options)
                                                  : probe(*world.communicator, options);
    };
    work.keep = [&](const Error& error) {
      remove_empty_file();
      if (options.json) fmt::print("{}", error_report_text(error));
    };
    const ExitCode code = run_session(session, work);
    if (code != ExitCode::ok) remove_empty_file();
    return code;
  }

 private:
  /// Removes the file of --out where opening it has made it and nothing was written.
  void remove_empty_file() const {
    std::error_code ignored;
    if (!out_.empty() && std::filesystem::file_size(out_, ignored) == 0) {
      std::filesystem::remove(out_, ignored);
    }
  }

  /// The parts, and what each may take: only operations take long.
  std::string parts_text(int ranks) const {
    // An upper bound: as if every pair of ranks were measured.
    const double pairs = ranks * (ranks - 1) / 2;
    std::string text = fmt::format("probing {}: links (about {:.0f} s)", plural(ranks, "rank"),
                                   std::ceil(link_pair_s * pairs));
    if (links_only_) return text;
    text += fmt::format(", rates and memory (about {:.0f} s)", std::ceil(4 * peak_s));
    if (!no_operations_)
      text += fmt::format(", operations of models (at most {:g} s)", operations_.time_limit_s);
    return text;
  }

  /// The whole probe of ranks on CPUs. Collective, step by step.
  ExitCode probe(Communicator& world, const GlobalOptions& options) {
    ProbeSteps steps(world, options);
    steps.say(parts_text(world.size()));
    const auto descriptors = gather_descriptors(world, describe_rank(world));
    AgglomerationConfig config;
    config.gap = gap_;
    steps.at("clusters", 0);
    // Clusters come first: with many ranks only representatives of each pair of clusters are
    // measured.
    const RankClusters clusters = discover_clusters(world, descriptors, config);
    LinkSweep sweep;
    sweep.before_round = [&](std::size_t done, std::size_t all) {
      steps.at("links", static_cast<double>(done) / static_cast<double>(all));
    };
    Cluster cluster = measure_links(world, clusters, descriptors, sweep);
    measure_cards(world, cluster, [&] { steps.at("cards", 0); });
    add_classes(world, descriptors, steps, cluster);
    steps.at("write", 0, out_);
    steps.finish();
    return tell(world, cluster, clusters.reason, options);
  }

  /// The probe of GPUs that NCCL joins; host ranks stand for their devices.
  ExitCode probe_devices(World& world, const GlobalOptions& options) {
    Communicator& hosts = *world.communicator;
    AgglomerationConfig config;
    config.gap = gap_;
    const auto library = open_nccl_device(world);
    DeviceWorld devices = make_device_world(world, library, describe_rank(hosts), {});
    MeasuredDevices measured = measure_devices(world, devices, config);
    const DeviceIdentity device = library->device();
    DeviceClass reading;
    reading.kind = DeviceKind::cuda;
    reading.memory = device.memory;
    fill_classes(gather_texts(hosts, device_reading_text(
                                         class_name(device.vendor + " " + device.model), reading)),
                 utc_now(), measured.file);
    // A plan needs rates, so their absence is told at once.
    if (!links_only_) warn(hosts, "rates of devices are not measured");
    return tell(hosts, measured.file, measured.clusters.reason, options);
  }

  /// Checks the description and lets rank 0 write and print it.
  ExitCode tell(Communicator& world, Cluster& cluster, const std::string& reason,
                const GlobalOptions& options) {
    cluster.name = name_;
    // A description that this program could not read back must not be written.
    check_cluster(cluster);
    if (world.rank() != RankId(0)) return ExitCode::ok;
    const std::string text = cluster_json_text(cluster);
    file_.save(text);
    // Without a file the description itself is the answer.
    if (options.json || out_.empty()) {
      fmt::print("{}", text);
    } else {
      fmt::print("{}", cluster_table(cluster, reason));
    }
    return ExitCode::ok;
  }

  /// A class per kind of device; its rates are the median of its devices'.
  void add_classes(Communicator& world, const std::vector<RankDescriptor>& descriptors,
                   ProbeSteps& steps, Cluster& cluster) {
    if (!links_only_) steps.at("rates", 0);
    const auto rank = world.rank().index();
    const auto here = std::count_if(descriptors.begin(), descriptors.end(),
                                    [&](const RankDescriptor& descriptor) {
                                      return descriptor.host == descriptors[rank].host;
                                    });
    // The same threads as a rank of a run would have here.
    const int threads = threads_per_rank_.value_or(
        std::max(1, usable_cores().count() / std::max(1, static_cast<int>(here))));
    // Equal for devices of one class.
    const std::string kind = cpu_class_name(descriptors[rank], threads);
    DeviceClass device = cpu_device_class(probe_machine(), static_cast<int>(here), threads);
    std::string why_not;
    const std::shared_ptr<Engine> engine = links_only_ ? nullptr : load_everywhere(world, why_not);
    if (engine) device.rates = measure_rates(world, *engine, threads);
    steps.finish();
    if (!why_not.empty()) warn(world, fmt::format("no rate was measured ({})", why_not));
    const auto readings = gather_texts(world, device_reading_text(kind, device));
    // All ranks must build the same file, so rank 0's clock and model count.
    const std::string date = share_text(world, utc_now());
    fill_classes(readings, date, cluster);
    if (links_only_) return;
    steps.at("memory", 0);
    const std::string machine = share_text(world, descriptors[rank].model);
    std::vector<std::string> hosts;
    for (const RankDescriptor& descriptor : descriptors) hosts.push_back(descriptor.host);
    const std::string untold =
        measure_memory_of(world, hosts, threads, peak_s, date, machine, cluster);
    if (!untold.empty()) {
      steps.finish();
      warn(world, fmt::format("no rate of memory was measured ({})", untold));
    }
    if (!engine || no_operations_) return;
    const auto tell_model = [&](const std::string& name, double done) {
      steps.at("operations", done, name);
    };
    OperationsRequest request = operations_;
    // Operations are measured with the threads that the rates were measured with.
    request.threads = threads;
    const std::vector<std::string> left_out =
        measure_operations_of(request, world, *engine, date, machine, tell_model, cluster);
    steps.finish();
    for (const std::string& link : left_out) warn(world, "not measured: " + link);
  }

  static void warn(Communicator& world, const std::string& text) {
    if (world.rank() == RankId(0)) print_warnings({text});
  }

  /// True where an option speaks of operations, which are measured without any as well.
  bool asks_for_operations() const {
    return !operations_.workloads.empty() || !operations_.size.empty() ||
           !operations_.model.empty() || !operations_.precisions.empty() ||
           !operations_.micro_batches.empty();
  }

  void declare_operations(CLI::App& command) {
    command.add_option("workload", operations_.workloads,
                       "whose operations are measured (default: every training's)");
    command.add_option("--size", operations_.size,
                       "of the workload (default: what the scaling rule chooses)");
    command.add_option("--model", operations_.model, "of the workload");
    command
        .add_option("--precision", operations_.precisions,
                    "fp32, bf16, fp64 (default: fp32, and bf16 where it is native)")
        ->delimiter(',');
    command
        .add_option("--micro-batch", operations_.micro_batches,
                    "samples (default: 1, 4, 16, ... and the workload's own)")
        ->delimiter(',');
    command.add_option("--seconds-each", operations_.seconds_each,
                       "for an operation of a model, about");
    command.add_option("--time-limit", operations_.time_limit_s,
                       "seconds for all operations together");
  }

  OutputFile file_;
  std::string out_, transport_, name_ = "probed";
  std::optional<int> ranks_;
  std::optional<int> threads_per_rank_;
  double gap_ = AgglomerationConfig{}.gap;
  bool links_only_ = false, no_operations_ = false;
  OperationsRequest operations_;
};

}  // namespace

std::unique_ptr<Verb> make_probe_verb() { return std::make_unique<ProbeVerb>(); }

}  // namespace heteroperf
