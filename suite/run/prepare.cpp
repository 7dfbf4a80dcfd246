#include "suite/run/prepare.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "metrics/random.hpp"
#include "runners/cluster/machine.hpp"
#include "suite/catalog.hpp"
#include "suite/run/search_program.hpp"
#include "workloads/graph_memory.hpp"

namespace heteroperf {
namespace {

template <class T>
std::optional<T> given(const T& value, bool is_given) {
  return is_given ? std::optional<T>(value) : std::nullopt;
}

WorkloadRequest request_of(const RunConfig& config, const CatalogEntry& entry) {
  WorkloadRequest request;
  request.size = config.model.size;
  request.model = config.model.name;
  request.data = config.data.source;
  request.precision = parse_precision(config.model.precision);
  request.micro_batch = given(config.batch.micro_batch, config.batch.micro_batch > 0);
  request.micro_batches = given(config.batch.micro_batches, config.batch.micro_batches > 0);
  request.sequence_length = given(config.model.sequence_length, config.model.sequence_length > 0);
  request.optimizer = given(config.optimizer.name, !config.optimizer.name.empty());
  request.schedule = given(config.optimizer.schedule, !config.optimizer.schedule.empty());
  request.learning_rate =
      given(config.optimizer.learning_rate, config.optimizer.learning_rate >= 0);
  request.weight_decay = given(config.optimizer.weight_decay, config.optimizer.weight_decay >= 0);
  request.clip_norm = given(config.optimizer.clip_norm, config.optimizer.clip_norm >= 0);
  if (config.optimizer.warmup_steps >= 0) {
    request.warmup_steps = static_cast<std::uint64_t>(config.optimizer.warmup_steps);
  }
  request.total_steps = entry.program == ProgramKind::training ? config.measure.steps : 0;
  request.seed = config.seed;
  return request;
}

void check_samples(const Workload& workload, int ranks, ProblemList& problems) {
  const std::uint64_t available = workload.data->size(Split::train);
  const auto wanted = static_cast<std::uint64_t>(workload.micro_batch * workload.micro_batches) *
                      static_cast<std::uint64_t>(ranks);
  if (wanted > available) {
    problems.add(fmt::format("{} needs {} samples a step", workload.name, wanted),
                 fmt::format("{} ranks x {} micro-batches of {}; {} has {} training samples", ranks,
                             workload.micro_batches, workload.micro_batch,
                             workload.data->description(), available),
                 "Use fewer --ranks or a smaller --micro-batch");
  }
}

void check_memory(const Workload& workload, const ScalingInput& machine, ProblemList& problems) {
  const double needed = static_cast<double>(
      estimate_memory(workload.graph, static_cast<std::uint64_t>(workload.micro_batch),
                      workload.precision, workload.recipe.kind)
          .total()
          .value());
  const double available = static_cast<double>(machine.memory_bytes);
  if (available == 0 || needed <= available) return;
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  problems.add(fmt::format("{} of size {} needs {:.1f} GiB per rank", workload.name, workload.size,
                           needed / gib),
               fmt::format("{:.1f} GiB available", available / gib),
               "Use fewer --ranks, a smaller --micro-batch or a smaller --size");
}

PreparedRun prepare_one(const RunConfig& config, const Placement& placement,
                        const CatalogEntry& entry, const ScalingInput& machine) {
  PreparedRun run{config, placement, entry.make(request_of(config, entry), machine), 0};
  run.config.workload = entry.name;
  run.config.scale.ranks = placement.ranks;
  run.config.scale.threads_per_rank = placement.threads_per_rank;
  if (entry.program == ProgramKind::search) run.groups = search_groups(config, placement.ranks);
  ProblemList problems;
  check_samples(run.workload, placement.ranks, problems);
  check_memory(run.workload, machine, problems);
  problems.throw_if_any();
  return run;
}

std::uint64_t hash_text(const std::string& text) {
  std::uint64_t hash = text.size();
  for (unsigned char c : text) hash = mix64(hash ^ c);
  return hash;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace

ScalingInput scaling_input(const Placement& placement, int ranks_on_host) {
  ScalingInput machine;
  machine.ranks = placement.ranks;
  machine.memory_bytes = probe_machine().usable_memory().value() /
                         static_cast<std::uint64_t>(std::max(1, ranks_on_host));
  machine.ops_per_second = nominal_core_ops_per_second * placement.threads_per_rank;
  return machine;
}

std::vector<PreparedRun> prepare_runs(const RunConfig& config, const Placement& placement,
                                      int ranks_on_host) {
  const ScalingInput machine = scaling_input(placement, ranks_on_host);
  std::vector<PreparedRun> runs;
  for (const CatalogEntry& entry : catalog()) {
    if (config.workload.empty() || config.workload == entry.name) {
      runs.push_back(prepare_one(config, placement, entry, machine));
    }
  }
  return runs;
}

HostShare share_of_host(Communicator& world, const UsableCores& cores) {
  const std::array<std::int64_t, 2> mine{static_cast<std::int64_t>(hash_text(host_name())),
                                         static_cast<std::int64_t>(hash_text(to_list(cores.cpus)))};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const std::int64_t>(mine), std::span<std::int64_t>(all));
  HostShare share{0, 0, 0};
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::size_t at = 2 * static_cast<std::size_t>(rank);
    if (all[at] != mine[0]) continue;
    ++share.ranks_on_host;
    if (all[at + 1] != mine[1]) continue;
    if (rank < world.rank().value()) ++share.index_on_mask;
    ++share.ranks_on_mask;
  }
  return share;
}

Placement choose_launched_placement(const ScaleConfig& config, const UsableCores& cores,
                                    int world_ranks, const HostShare& share) {
  ScaleConfig on_mask = config;
  on_mask.ranks = share.ranks_on_mask;
  Placement placement = choose_placement(on_mask, cores, 0);
  if (!placement.cpus.empty()) {
    placement.cpus = {placement.cpus[static_cast<std::size_t>(share.index_on_mask)]};
    placement.binding = fmt::format("rank bound to cpu {}", to_list(placement.cpus.front()));
  }
  placement.ranks = world_ranks;
  return placement;
}

}  // namespace heteroperf
