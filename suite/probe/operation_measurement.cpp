// Measures how long single operations of models take, so that a planner need not guess from one
// peak rate. A *job* is one model in one precision at one micro-batch; operations are measured at
// several micro-batches because small ones are slower per sample. All ranks measure the same job at
// the same time, as they compute in a run, and each class keeps the median of its ranks.
//
// The time limit is shared out: each job may take an equal part of what is left, so that jobs that
// need less leave more to the later ones. A job that could not finish its rounds on some rank of a
// class is left out for that class and named. Results are entries of the cluster's efficiency
// matrix.
#include "suite/probe/operation_measurement.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"
#include "runners/cluster/efficiency_matrix.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/plan/times/measured_operations.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/planning/plan_sources.hpp"
#include "suite/program/catalog.hpp"
#include "suite/program/signals.hpp"
#include "suite/watch/memory_rate.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t micro_batch_step = 4;
constexpr std::int64_t most_samples = 1 << 16;
constexpr std::size_t numbers_each = 5;  // fields of OperationSeconds

/// One model in one precision at one micro-batch.
struct MeasurementJob {
  const Workload* workload;
  std::int64_t samples;
  std::string name() const {
    return fmt::format("{} {} {}, micro-batch {}", workload->name, workload->size,
                       to_string(workload->precision), samples);
  }
};

/// A search has no one model whose operations could be measured.
std::vector<std::string> trainings() {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : catalog()) {
    if (entry.program == ProgramKind::training) names.emplace_back(entry.name);
  }
  return names;
}

/// Estimates the memory of a job: weights, gradients and optimizer states of the operations, and
/// what goes between them.
double bytes_of(const ModelOperations& model, std::int64_t samples) {
  constexpr double copies_of_weights = 4, copies_of_activations = 2;
  double sum = 0;
  for (const FusedWork& work : model.operations) {
    for (const OperatorWork& node : work.nodes) {
      sum += copies_of_weights * node.weight_gradient.fixed_bytes / 2 +
             copies_of_activations * node.forward.bytes * static_cast<double>(samples);
    }
  }
  return sum;
}

/// A number of every rank, on every rank: [rank][i].
std::vector<std::vector<double>> gather(Communicator& world, const std::vector<double>& numbers) {
  std::vector<double> all(numbers.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const double>(numbers), std::span<double>(all));
  std::vector<std::vector<double>> result;
  for (std::size_t begin = 0; begin < all.size(); begin += numbers.size()) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin);
    result.emplace_back(first, first + static_cast<std::ptrdiff_t>(numbers.size()));
  }
  return result;
}

/// The numbers of the ranks whose devices are of a class.
std::vector<std::vector<double>> of_class(const std::string& device_class, const Cluster& cluster,
                                          const std::vector<std::vector<double>>& by_rank) {
  std::vector<std::vector<double>> result;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (cluster.ranks[rank].device_class == device_class) result.push_back(by_rank[rank]);
  }
  return result;
}

/// Takes the median over the ranks, number by number.
std::vector<double> medians_of(const std::vector<std::vector<double>>& by_rank) {
  std::vector<double> result;
  for (std::size_t i = 0; i < by_rank.front().size(); ++i) {
    std::vector<double> values;
    for (const std::vector<double>& numbers : by_rank) values.push_back(numbers[i]);
    result.push_back(median(values));
  }
  return result;
}

/// Flattens a result, so that ranks can exchange it in one gather; the optimizer's time is the last
/// number.
std::vector<double> numbers_of(const OperationProbeResult& result) {
  std::vector<double> numbers;
  for (const OperationSeconds& op : result.operations) {
    numbers.insert(numbers.end(), {op.forward_s, op.input_gradient_s, op.weight_gradient_s,
                                   op.backward_s, static_cast<double>(op.repetitions)});
  }
  numbers.push_back(result.optimizer_s);
  return numbers;
}

/// Reads the numbers back; the last one, which is left over, is the optimizer's.
std::vector<OperationSeconds> seconds_of(const std::vector<double>& numbers) {
  std::vector<OperationSeconds> result;
  for (std::size_t i = 0; i + numbers_each <= numbers.size(); i += numbers_each) {
    result.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3],
                      static_cast<int>(numbers[i + 4])});
  }
  return result;
}

Workload workload_of(const OperationsRequest& request, const CatalogEntry& entry,
                     Precision precision, const ScalingInput& machine) {
  WorkloadRequest wanted;
  wanted.precision = precision;
  const std::string chosen = entry.choose(machine).size;
  wanted.size = request.size.empty() ? chosen : request.size;
  wanted.model = request.model.empty() ? chosen : request.model;
  return entry.make(wanted, machine);
}

/// Measures all that a request asks for.
struct OperationMeasurement {
  const OperationsRequest& request;
  Communicator& world;
  Engine& engine;
  ProbeSource source;
  const BeforeModel& before_model;
  Cluster& cluster;
  Stopwatch stopwatch = {};
  std::vector<std::unique_ptr<Workload>> workloads = {};
  std::vector<MeasurementJob> jobs = {};
  std::vector<std::string> left_out = {};
  EfficiencyMatrix matrix = {};

  std::vector<std::string> run() {
    make_jobs();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const double left_s = request.time_limit_s - stopwatch.elapsed_s();
      const auto count = static_cast<double>(jobs.size()), done = static_cast<double>(i);
      before_model(jobs[i].name(), done / count);
      measure(jobs[i], left_s / (count - done));
    }
    apply(matrix, cluster);
    return std::move(left_out);
  }

  // It must pay on all ranks, since all measure the same jobs.
  bool bf16_pays() const {
    double speedup = bf16_speedup(engine, request.threads);
    world.all_reduce(std::span(&speedup, 1), Reduction::min);
    return speedup > 1;
  }

  /// The precisions that were asked for, else those that pay on the devices.
  std::vector<Precision> precisions() {
    std::vector<Precision> result;
    for (const std::string& name : request.precisions) result.push_back(parse_precision(name));
    if (!result.empty()) return result;
    if (bf16_pays()) return {Precision::fp32, Precision::bf16};
    left_out.emplace_back(
        "bf16: its products are no faster than float32's on these devices "
        "(--precision bf16 asks for it)");
    return {Precision::fp32};
  }

  /// All models in all precisions at all micro-batches.
  void make_jobs() {
    const std::vector<Precision> wanted = precisions();
    const std::vector<std::string> names =
        request.workloads.empty() ? trainings() : request.workloads;
    for (const Precision precision : wanted) {
      const ScalingInput machine = scaling_input(cluster, precision);
      for (const std::string& name : names) {
        workloads.push_back(std::make_unique<Workload>(
            workload_of(request, find_workload(name), precision, machine)));
      }
    }
    for (const auto& workload : workloads) {
      for (const std::int64_t samples : micro_batches(*workload)) {
        jobs.push_back({workload.get(), samples});
      }
    }
    // Before the first measurement: a job that cannot fit is the user's to change.
    check_memory();
  }

  std::vector<std::int64_t> micro_batches(const Workload& workload) const {
    if (!request.micro_batches.empty()) return request.micro_batches;
    std::vector<std::int64_t> result;
    // Powers of four and the workload's own.
    for (std::int64_t n = 1; n < workload.micro_batch; n *= micro_batch_step) result.push_back(n);
    result.push_back(workload.micro_batch);
    return result;
  }

  void check_memory() const {
    ProblemList problems;
    for (const MeasurementJob& job : jobs) {
      const double needed =
          bytes_of(model_operations(job.workload->graph, job.workload->precision), job.samples);
      for (const DeviceClass& device : cluster.classes) {
        const auto available = static_cast<double>(device.memory.value());
        if (available == 0 || needed <= available) continue;
        constexpr double gib = 1 << 30;
        problems.add(fmt::format("the operations of {} need {:.1f} GiB", job.name(), needed / gib),
                     fmt::format("{} has {:.1f} GiB", device.name, available / gib),
                     "Use a smaller --size or --micro-batch, or fewer --ranks.");
      }
    }
    problems.throw_if_any();
  }

  /// Measures one job on all ranks and adds an entry per class.
  void measure(const MeasurementJob& job, double seconds) {
    const Workload& workload = *job.workload;
    const ModelOperations model = model_operations(workload.graph, workload.precision);
    // Ranks that begin together disturb each other as they do in a run. Even without a measurement
    // a model takes a while to build; so behind the limit none is built, on no rank.
    world.all_reduce(std::span(&seconds, 1), Reduction::min);
    OperationProbe probe = operation_probe(workload, model, job.samples, request.threads);
    probe.seconds_each = request.seconds_each;
    probe.deadline_s = seconds;
    // A signal ends the job on this rank; the next step ends the probe on all.
    probe.stop = [] { return stop_signal() != nullptr; };
    OperationProbeResult measured{.operations = {model.operations.size(), OperationSeconds{}}};
    if (probe.deadline_s > 0) measured = engine.measure_operations(probe);
    // Every rank gets all numbers, so that all make the same matrix.
    const auto by_rank = gather(world, numbers_of(measured));
    source.workload = workload.name + " " + workload.size;
    for (const DeviceClass& device : cluster.classes) {
      source.device_class = device.name;
      const auto ranks = of_class(device.name, cluster, by_rank);
      // A median over some of the ranks would hide the slow ones.
      if (std::any_of(ranks.begin(), ranks.end(), [](const std::vector<double>& numbers) {
            return seconds_of(numbers).front().repetitions == 0;
          })) {
        left_out.push_back(fmt::format("{} on {}: no time for five rounds (--time-limit {:g})",
                                       job.name(), device.name, request.time_limit_s));
        continue;
      }
      const std::vector<double> numbers = medians_of(ranks);
      add_measured(model, job.samples, workload.precision, seconds_of(numbers), source, matrix);
      add_measured_optimizer(workload.recipe.kind, measured.optimizer_elements, workload.precision,
                             numbers.back(), source, matrix);
    }
  }
};

}  // namespace

std::string utc_now() {
  return fmt::format(
      "{:%Y-%m-%dT%H:%M:%SZ}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

void OperationsRequest::check(ProblemList& problems) const {
  for (const std::string& name : workloads) {
    collect_problems(problems,
                     [&] { workload_of(*this, find_workload(name), Precision::fp32, {}); });
  }
  for (const std::string& name : precisions)
    collect_problems(problems, [&] { parse_precision(name); });
  const std::vector<std::string> names = workloads.empty() ? trainings() : workloads;
  const auto means_nothing = [&](const char* flag, const std::string& value, const char* key) {
    const std::vector<std::string> with = workloads_with(key);
    if (value.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
          return std::find(with.begin(), with.end(), name) != with.end();
        })) {
      return;
    }
    problems.add(fmt::format("{} {} means nothing for {}", flag, value, fmt::join(names, ", ")),
                 fmt::format("it is for {}", fmt::join(with, ", ")), "Leave it out.");
  };
  means_nothing("--size", size, "model.size");
  means_nothing("--model", model, "model.name");
  for (const std::int64_t samples : micro_batches) {
    if (samples >= 1 && samples <= most_samples) continue;
    problems.add(fmt::format("--micro-batch {}", samples), "samples",
                 fmt::format("Give 1 to {}.", most_samples));
  }
  const std::pair<const char*, double> seconds[] = {{"--seconds-each", seconds_each},
                                                    {"--time-limit", time_limit_s}};
  for (const auto& [flag, value] : seconds) {
    if (value > 0 && value <= 86400) continue;
    problems.add(fmt::format("{} {:g}", flag, value), "seconds",
                 "Give more than 0, at most a day.");
  }
}

OperationProbe operation_probe(const Workload& workload, const ModelOperations& model,
                               std::int64_t samples, int threads) {
  OperationProbe probe{workload.graph, model, workload.data};
  probe.recipe = workload.recipe;
  probe.precision = workload.precision;
  probe.samples = samples;
  probe.micro_batches = workload.micro_batches;
  probe.threads = threads;
  return probe;
}

std::vector<std::string> measure_operations_of(const OperationsRequest& request,
                                               Communicator& world, Engine& engine,
                                               const std::string& date, const std::string& machine,
                                               const BeforeModel& before_model, Cluster& cluster) {
  return OperationMeasurement{request,      world,  engine, {"", machine, date, ""},
                              before_model, cluster}
      .run();
}

std::string measure_memory_of(Communicator& world, const std::vector<std::string>& hosts,
                              int threads, double seconds, const std::string& date,
                              const std::string& machine, Cluster& cluster) {
  const auto rank = world.rank().index();
  // Ranks of one host share its memory and are measured as one group.
  const auto first = std::find(hosts.begin(), hosts.end(), hosts[rank]) - hosts.begin();
  const auto host = world.split(static_cast<int>(first), world.rank().value());
  const MemoryRate memory = measure_memory_rate(*host, usable_cores().cpus, threads, seconds);
  const std::vector<std::string> reasons = gather_texts(world, memory.reason);
  const auto by_rank = gather(world, {memory.bytes_per_second.value_or(0)});
  EfficiencyMatrix matrix;
  for (const DeviceClass& device : cluster.classes) {
    std::vector<double> rates;
    for (const std::vector<double>& rate : of_class(device.name, cluster, by_rank)) {
      if (rate.front() > 0) rates.push_back(rate.front());
    }
    // A class that has no rank with a number gets no entry rather than a guess.
    if (rates.empty()) continue;
    matrix.add({device.name, DeviceQuantity::memory_bytes_per_s},
               {median(rates),
                {Provenance::probe, fmt::format("measured {} on {}, triad", date, machine)}});
  }
  apply(matrix, cluster);
  const auto untold = std::find_if(reasons.begin(), reasons.end(),
                                   [](const std::string& reason) { return !reason.empty(); });
  return untold == reasons.end() ? "" : *untold;
}

}  // namespace heteroperf
