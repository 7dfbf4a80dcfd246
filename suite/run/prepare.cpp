// Makes the workloads of a configuration ready to run and refuses everything that cannot work, with
// all problems at once, before a folder exists. The order is fixed: the catalog entry makes the
// workload (data, graph, recipe), then the plan or the groups of a search follow, then memory and
// the number of samples are checked, and at last the configuration is completed with what was
// chosen.
//
// A workload that needs more memory than there is would end in the out-of-memory killer. Memory of
// a host is shared by its ranks: the mean demand is held against the mean share, so a pipeline
// whose first stage is larger than its last passes as long as the host holds both. A GPU belongs to
// its own ranks, so each of them is held against its device and the fullest is named.
//
// Two configurations leave here. `settled` has ranks, threads and model size filled in; the
// reproduce line is written from it and stays short. `effective` has every value that the workload
// chose; the journal keeps it. A process that only starts mpirun opens no data (Reading::nothing):
// generated data of the same kind stand in.
#include "suite/run/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "results/record/ruleset.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/comm/mpi_launch.hpp"
#include "suite/config/reproduce.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/config/training_identity.hpp"
#include "suite/program/catalog.hpp"
#include "suite/run/resume.hpp"
#include "suite/search/search_service.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph_memory.hpp"

namespace heteroperf {
namespace {

/// Many keys use 0 for "the workload chooses"; a request says so with an absent value.
std::optional<std::int64_t> given(std::int64_t value) {
  return value > 0 ? std::optional(value) : std::nullopt;
}

/// Steps to which a learning rate can decay; 0: a training by time has no last step.
std::uint64_t decay_steps(const RunConfig& config, ProgramKind program) {
  return program == ProgramKind::training ? config.measure.steps : last_milestone(config.automl);
}

WorkloadRequest request_of(const RunConfig& config, const CatalogEntry& entry) {
  WorkloadRequest request;
  request.size = config.model.size;
  request.model = config.model.name;
  request.freeze = config.model.freeze;
  request.data = config.data.source;
  request.precision = config.model.precision;
  request.micro_batch = given(config.batch.micro_batch);
  request.micro_batches = given(config.batch.micro_batches);
  request.sequence_length = given(config.model.sequence_length);
  request.images = given(config.model.images);
  request.optimizer = config.optimizer;
  request.total_steps = decay_steps(config, entry.program);
  // Without a last step there is nothing to decay to.
  if (request.total_steps == 0) request.optimizer.schedule = LearningRateSchedule::constant;
  request.seed = config.seed;
  return request;
}

void check_samples(const Workload& workload, std::uint64_t wanted, const std::string& made_of,
                   ProblemList& problems) {
  const std::uint64_t available = workload.data->size(Split::train);
  if (wanted > available) {
    problems.add(fmt::format("{} needs {} samples a step", workload.name, wanted),
                 fmt::format("{}; {} has {} training samples", made_of,
                             workload.data->description(), available),
                 "Use fewer --ranks or a smaller --micro-batch");
  }
}

/// Pairs are judged in whole sets, so that losses compare with the target and the floor.
void check_evaluation(const RunConfig& config, const Workload& workload, ProblemList& problems) {
  const std::uint64_t samples = config.measure.evaluation_samples;
  if (workload.data->spec().kind != SampleKind::pairs || samples % evaluated_pairs == 0) return;
  problems.add(fmt::format("measure.evaluation_samples = {} with {}", samples, workload.name),
               fmt::format("{} pairs at a time are held against one another", evaluated_pairs),
               fmt::format("Give a multiple of {}", evaluated_pairs));
}

/// The memory of a search's ranks, each of which trains by itself or in step with its group, beside
/// the best model so far.
std::vector<double> search_memory(const Workload& workload, const Placement& placement) {
  const MemoryEstimate trained =
      estimate_memory(workload.graph, static_cast<std::uint64_t>(workload.micro_batch),
                      workload.precision, workload.recipe.kind);
  // A group keeps its best model for the last evaluation; it has no activations meanwhile.
  const Bytes kept = trained.total() - trained.activations;
  return std::vector<double>(placement.bindings.size(),
                             static_cast<double>((trained.total() + kept).value()));
}

void check_schedule_and_transport(const RunConfig& config, const CatalogEntry& entry,
                                  ProblemList& problems) {
  const auto schedule = config.optimizer.schedule.value_or(LearningRateSchedule::constant);
  if (schedule != LearningRateSchedule::constant && decay_steps(config, entry.program) == 0) {
    problems.add(fmt::format("optimizer.schedule = {} changes nothing in {}", to_string(schedule),
                             entry.name),
                 "a training by time has no last step to decay to", "Use --steps, or leave it out");
  }
  // Groups of a search come and go: their sums go through the hosts.
  if (config.scale.transport == Transport::nccl && entry.program == ProgramKind::search) {
    problems.add(fmt::format("--transport nccl does not go with {}", entry.name),
                 "a search's groups sum through the hosts", "Use --transport mpi");
  }
}

/// The workload that this machine gets for `config`: scale and size as numbers and names.
RunConfig settled(const RunConfig& config, const Placement& placement, const Workload& workload) {
  RunConfig result = config;
  result.workload = workload.name;
  result.scale.ranks = placement.ranks;
  result.scale.threads_per_rank = placement.threads_per_rank;
  const auto sized = workloads_with("model.size");
  if (std::find(sized.begin(), sized.end(), workload.name) != sized.end()) {
    result.model.size = workload.size;
  }
  return result;
}

/// Whatever was left to the workload, as it chose it.
RunConfig effective(const RunConfig& config, const Workload& workload,
                    const std::optional<ChosenPlan>& plan) {
  RunConfig result = config;
  const OptimizerRecipe& recipe = workload.recipe;
  const SampleSpec& spec = workload.data->spec();
  if (spec.has_text()) result.model.sequence_length = spec.length;
  if (!config.automl.history.empty()) {
    // A search that starts from this run finds its history from any folder.
    result.automl.history = std::filesystem::absolute(config.automl.history).string();
  }
  if (config.plan.file.empty()) {
    if (plan) {
      result.plan.zero_stage = plan->plan.zero_stage;
      result.plan.schedule = plan->plan.schedule;
    }
    result.batch = {workload.micro_batch, plan ? plan->plan.micro_batches : workload.micro_batches};
  }
  result.optimizer = {recipe.kind,          recipe.schedule,
                      recipe.learning_rate, recipe.weight_decay,
                      recipe.clip_norm,     static_cast<std::int64_t>(recipe.warmup_steps)};
  return result;
}

/// The groups of a search, and the trials that it starts from.
void check_search(const RunConfig& config, Reading reading, PreparedRun& run,
                  ProblemList& problems) {
  collect_problems(problems, [&] { run.groups = search_groups(config, run.placement.ranks); });
  if (has_unlike_devices(run.placement) && config.automl.group_ranks > 1) {
    problems.add("groups of a search on unlike devices",
                 "a group's replicas would part by the roundings of their updates",
                 "Use --set automl.group_ranks=1, or one device for all");
  }
  const std::string& history = config.automl.history;
  if (history.empty()) return;
  collect_problems(problems, [&] {
    check_search_history(history, reading == Reading::nothing ? nullptr : &run.workload);
  });
}

/// Without the slash that a folder's name may end with.
std::filesystem::path plain_folder(const std::filesystem::path& path) {
  return (std::filesystem::absolute(path) / "").lexically_normal().parent_path();
}

/// The folder of --out is made before the trace is written.
void check_trace(const RunConfig& config, ProblemList& problems) {
  if (config.trace.empty()) return;
  const std::filesystem::path folder =
      plain_folder(std::filesystem::absolute(config.trace).parent_path());
  if (!config.out.empty() && folder == plain_folder(config.out)) return;
  if (std::filesystem::is_directory(folder) && !std::filesystem::is_directory(config.trace)) return;
  problems.add(fmt::format("--trace {} cannot be written", config.trace),
               std::filesystem::is_directory(config.trace) ? "it is a folder"
                                                           : folder.string() + " is no folder",
               "Give it the path of a file in a folder that is there");
}

/// Holds the needs of the ranks to the machine and the data; makes the plan of a fixed model.
void check_sizes(const RunConfig& config, const PlanSources& sources, ProgramKind program,
                 const ScalingInput& machine, PreparedRun& run, ProblemList& problems) {
  if (program == ProgramKind::search) {
    const Workload& workload = run.workload;
    const int ranks = run.placement.ranks;
    check_samples(workload,
                  static_cast<std::uint64_t>(workload.micro_batch * workload.micro_batches * ranks),
                  fmt::format("{} ranks x {} micro-batches of {}", ranks, workload.micro_batches,
                              workload.micro_batch),
                  problems);
    check_memory(run.workload, search_memory(run.workload, run.placement), run.placement.bindings,
                 machine.memory_bytes, problems);
    return;
  }
  check_trace(config, problems);
  collect_problems(problems, [&] {
    run.plan = choose_plan(config, sources, run.workload, run.placement);
    std::vector<double> needed;
    for (const MemoryLedger& ledger : run.plan->memory) {
      needed.push_back(static_cast<double>(ledger.total().value()));
    }
    check_memory(run.workload, needed, run.placement.bindings, machine.memory_bytes, problems);
  });
  // Its problems are collected already.
  if (!run.plan) return;
  const Plan& plan = run.plan->plan;
  check_samples(run.workload, plan.samples_per_step(), summary_text(plan), problems);
  check_evaluation(config, run.workload, problems);
}

/// The machine with no more memory than the smallest emulated chip, for the choice of a size.
ScalingInput within_devices(ScalingInput machine, const Placement& placement) {
  for (const RankBinding& binding : placement.bindings) {
    if (binding.gpu || binding.device_memory_bytes == 0) continue;
    machine.memory_bytes = std::min(machine.memory_bytes, binding.device_memory_bytes);
  }
  return machine;
}

PreparedRun prepare_one(const RunConfig& config, const PlanSources& sources,
                        const Placement& placement, const CatalogEntry& entry,
                        const ScalingInput& machine, Reading reading) {
  const std::string generated = DataConfig().source;
  ProblemList problems;
  PreparedRun run{config, placement, {}, 0, ""};
  check_schedule_and_transport(config, entry, problems);
  collect_problems(problems, [&] {
    WorkloadRequest request = request_of(config, entry);
    // Generated data stand in for what is not read; their kind is the workload's, not their size.
    if (reading == Reading::nothing) request.data = generated;
    run.workload = entry.make(request, within_devices(machine, placement));
    if (entry.program == ProgramKind::search) check_search(config, reading, run, problems);
    if (reading == Reading::nothing) {
      check_data(config.data.source, run.workload.data->spec().kind);
      if (config.data.source != generated) return;
    }
    check_sizes(config, sources, entry.program, machine, run, problems);
  });
  problems.throw_if_any();
  if (reading == Reading::nothing) return run;
  // A resumed training must be the one that its checkpoint belongs to; only now is all of it known.
  if (config.parent) {
    const std::uint64_t samples = run.plan ? run.plan->plan.samples_per_step() : 0;
    check_continues(*config.parent, training_identity(run.workload, samples, config.seed));
  }
  const RunConfig chosen = settled(config, placement, run.workload);
  run.config = effective(chosen, run.workload, run.plan);
  // A foreign program that started the ranks is named; empty: this program did.
  const auto launched = detect_launcher();
  const bool foreign = launched && std::getenv(LaunchFolder::variable) == nullptr;
  run.reproduce = reproduce_command(chosen, foreign ? launched->launcher : "");
  run.baselines = choose_baselines(run);
  run.allocated_devices =
      sources.cluster_devices > 0 ? sources.cluster_devices : devices_of_hosts(placement);
  return run;
}

/// Makes the problem of a workload in a suite say whose it is, unless its first word does.
std::string named(const std::string& problem, const char* workload) {
  const bool says_so = problem.rfind(workload + std::string(" "), 0) == 0;
  return says_so ? problem : fmt::format("{}: {}", workload, problem);
}

}  // namespace

ScalingInput scaling_input(const Placement& placement, int ranks_on_host) {
  ScalingInput machine;
  machine.memory_bytes = probe_machine().usable_memory().value() /
                         static_cast<std::uint64_t>(std::max(1, ranks_on_host));
  machine.ops_per_second = nominal_core_ops_per_second * placement.threads_per_rank;
  return machine;
}

void check_memory(const Workload& workload, const std::vector<double>& needed_bytes,
                  const std::vector<RankBinding>& bindings, std::uint64_t host_bytes,
                  ProblemList& problems) {
  HETEROPERF_EXPECT(needed_bytes.size() == bindings.size());
  // Nothing is refused where the size is not known, 0.
  const auto check = [&](double needed, std::uint64_t available, const std::string& where) {
    const double lacking = needed - static_cast<double>(available);
    if (available == 0 || lacking <= 0) return;
    problems.add(fmt::format("{} of size {} needs {} {}", workload.name, workload.size,
                             rounded_byte_size(needed), where),
                 fmt::format("{} available, {} too little", rounded_byte_size(Bytes(available)),
                             rounded_byte_size(lacking)),
                 "Use fewer --ranks, a smaller --micro-batch or a smaller --size");
  };
  double on_host = 0, host_ranks = 0, fullness = 0;
  std::optional<std::size_t> fullest;  // the rank whose device it is
  for (std::size_t r = 0; r < bindings.size(); ++r) {
    const auto own_bytes = static_cast<double>(bindings[r].device_memory_bytes);
    if (!bindings[r].gpu) {
      // An emulated chip's memory is a part of the host's.
      on_host += needed_bytes[r];
      ++host_ranks;
    }
    if (own_bytes > 0 && needed_bytes[r] / own_bytes > fullness) {
      fullness = needed_bytes[r] / own_bytes;
      fullest = r;
    }
  }
  check(on_host / std::max(1.0, host_ranks), host_bytes, "per rank");
  if (!fullest) return;
  const RankBinding& binding = bindings[*fullest];
  check(needed_bytes[*fullest], binding.device_memory_bytes,
        fmt::format("on the {} of rank {} ({} of {})", binding.gpu ? "GPU" : "device", *fullest,
                    binding.device, binding.host));
}

std::vector<PreparedRun> prepare_runs(const RunConfig& config, const PlanSources& sources,
                                      const Placement& placement, int ranks_on_host,
                                      Reading reading) {
  const ScalingInput machine = scaling_input(placement, ranks_on_host);
  const bool alone = !config.workload.empty();
  std::vector<PreparedRun> runs;
  ProblemList all;
  for (const CatalogEntry& entry : catalog()) {
    const bool wanted = alone ? config.workload == entry.name : is_in_suite(entry.name);
    if (!wanted) continue;
    ProblemList problems;
    collect_problems(problems, [&] {
      runs.push_back(prepare_one(config, sources, placement, entry, machine, reading));
    });
    for (const Problem& problem : problems.problems()) {
      all.add(alone ? problem.problem : named(problem.problem, entry.name), problem.why,
              problem.suggestion);
    }
  }
  all.throw_if_any();
  return runs;
}

}  // namespace heteroperf
