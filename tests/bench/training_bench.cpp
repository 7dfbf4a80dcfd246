// Speed of training on this machine, and where the time goes.
//
//   training_bench [--steps N] [--ranks N] [--threads 1,2] [--precision fp32|bf16] [MODEL...]
//
// MODEL: nano, micro (micro-batch 16), resnet18 (32x32, batch 32); all when none is named. One line
// per model and thread count: rate, time per step, its split; below it the share of each kind of
// operator of one rank, measured in separate steps. The micro-batch is per rank.
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <string>
#include <vector>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator.hpp"
#include "runners/engine/pipeline/batch_loader.hpp"
#include "runners/engine/pipeline/stage_executor.hpp"
#include "runners/plan/even_plan.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

struct Arguments {
  int steps = 10, ranks = 1;
  std::vector<int> threads{1, 2};
  Precision precision = Precision::fp32;
  std::vector<std::string> models;
};

Arguments parse(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string word = values[i];
    const bool option = word.rfind("--", 0) == 0;
    if (!option) {
      arguments.models.push_back(word);
      continue;
    }
    if (++i == count) throw UserError(word + " lacks a value");
    if (word == "--steps") arguments.steps = std::atoi(values[i]);
    if (word == "--ranks") arguments.ranks = std::atoi(values[i]);
    if (word == "--precision") arguments.precision = parse_precision(values[i]);
    if (word == "--threads") {
      arguments.threads.clear();
      std::istringstream list(values[i]);
      for (std::string n; std::getline(list, n, ',');) {
        arguments.threads.push_back(std::atoi(n.c_str()));
      }
    }
  }
  if (arguments.models.empty()) arguments.models = {"nano", "micro", "resnet18"};
  return arguments;
}

TrainingSpec training_of(const std::string& model, const Arguments& arguments, int threads) {
  TrainingSpec spec;
  const bool images = model == "resnet18";
  DataRequest request;
  if (images) {
    ModelOptions options;
    options.height = options.width = 32;
    options.classes = 10;
    spec.graph = build_model(model, options);
    request.wanted = {SampleKind::images, 3, 32, 32, 0, 10};
  } else {
    spec.graph = build_model(model);
    const Node& input = spec.graph.node(spec.graph.input());
    const Node& loss = spec.graph.node(spec.graph.loss());
    const std::int64_t vocabulary = spec.graph.node(loss.inputs.front()).output.back();
    request.wanted = {SampleKind::tokens, 0, 0, 0, input.output.front(), vocabulary};
  }
  spec.data = open_data(request);
  spec.precision = arguments.precision;
  spec.use_plan(even_plan(spec.graph, {.data = arguments.ranks, .micro_batch = images ? 32 : 16}));
  spec.threads = threads;
  return spec;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

long page_faults() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return use.ru_minflt;
}

double thread_cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Speed {
  double step_s = 0;
  double cpu_s = 0;  ///< of the rank's own thread, per step: meaningful on a busy machine too
  double faults_per_step = 0;  ///< of the whole process
  TimeSplit split;             ///< means
  std::uint64_t peak_bytes = 0;
};

Speed measure(const TrainingSpec& spec, Communicator& group, int steps) {
  const auto session = start_training(spec, group);
  for (int i = 0; i < 2; ++i) session->step();
  Speed speed;
  std::vector<double> walls, cpu;
  const long faults = page_faults();
  for (int i = 0; i < steps; ++i) {
    const double cpu_start = thread_cpu_s();
    const StepReport report = session->step();
    cpu.push_back(thread_cpu_s() - cpu_start);
    walls.push_back(static_cast<double>(report.t_end_ns - report.t_start_ns) * 1e-9);
    speed.split.compute_s += report.split.compute_s / steps;
    speed.split.communication_s += report.split.communication_s / steps;
    speed.split.data_s += report.split.data_s / steps;
  }
  speed.step_s = median(walls);
  speed.cpu_s = median(cpu);
  speed.faults_per_step = static_cast<double>(page_faults() - faults) / steps;
  speed.peak_bytes = session->memory().peak_bytes;
  return speed;
}

void print_speed(const std::string& model, const TrainingSpec& spec, const Arguments& arguments) {
  Speed speed;
  run_on_threads(arguments.ranks, {}, [&](World& world) {
    const Speed own = measure(spec, *world.communicator, arguments.steps);
    if (world.communicator->rank() == RankId(0)) speed = own;
  });
  const SampleSpec& sample = spec.data->spec();
  const bool images = sample.kind == SampleKind::images;
  const std::int64_t samples = static_cast<std::int64_t>(spec.plan().samples_per_step());
  const Ops ops = strict_train_ops(spec.graph, static_cast<std::uint64_t>(samples));
  fmt::print(
      "{:<9} {} x {}  {:9.1f} {}/s  {:8.2f} ms/step  {:8.2f} CPU ms  {:6.1f} Gop/s  compute {:.2f} "
      "communication "
      "{:.2f} data {:.2f} ms  peak {:.1f} MiB/rank  {:.0f} page faults/step\n",
      model, arguments.ranks, spec.threads,
      static_cast<double>(samples * (images ? 1 : sample.length)) / speed.step_s,
      images ? "image" : "token", speed.step_s * 1e3, speed.cpu_s * 1e3,
      ops.to_double() / speed.step_s * 1e-9, speed.split.compute_s * 1e3,
      speed.split.communication_s * 1e3, speed.split.data_s * 1e3,
      static_cast<double>(speed.peak_bytes) / 1048576.0, speed.faults_per_step);
}

struct KindTime {
  std::string kind;  ///< "linear+gelu"
  double forward_s = 0, backward_s = 0;
};

/// Adds up the seconds of groups by the kinds of their nodes.
class KindTimes final : public GroupTimer {
 public:
  explicit KindTimes(const StageModel& model) {
    for (const OperatorGroup& group : model.groups) {
      std::string kind;
      for (const NodeId node : group.nodes) {
        if (!kind.empty()) kind += '+';
        kind += kind_name(model.graph.node(node).attributes);
      }
      const auto known = std::find_if(times_.begin(), times_.end(),
                                      [&](const KindTime& time) { return time.kind == kind; });
      time_of_group_.push_back(static_cast<std::size_t>(known - times_.begin()));
      if (known == times_.end()) times_.push_back({kind});
    }
  }

  void begin() override { stopwatch_ = Stopwatch(); }
  void end(std::size_t group, GroupPass pass) override {
    KindTime& time = times_[time_of_group_[group]];
    (pass == GroupPass::forward ? time.forward_s : time.backward_s) += stopwatch_.elapsed_s();
  }
  std::vector<KindTime> times() const { return times_; }

 private:
  Stopwatch stopwatch_;
  std::vector<KindTime> times_;
  std::vector<std::size_t> time_of_group_;
};

void print_shares(const TrainingSpec& spec, int steps) {
  const c10::InferenceMode no_tape;
  const RankMemory memory;
  const MemoryScope charged(memory);
  use_threads(spec.threads);
  ParameterStore store(spec.graph, spec.precision, spec.seed);
  StageExecutor executor(whole_model(spec.graph, store.operator_type(), Fusion::on), store);
  const BatchLoader loader(spec.data, store.operator_type());
  const StepSamples samples(*spec.data, spec.seed, 0, spec.plan().samples_per_step());
  KindTimes timer(executor.model());
  for (int i = 0; i < steps + 2; ++i) {
    if (i == 2) executor.time_groups(&timer);
    const Batch batch = loader.train(samples, 0, spec.plan().micro_batch_samples());
    executor.overwrite_gradients();
    for (const NodeId node : executor.data_inputs()) {
      executor.put(0, node, batch.of(std::get<Input>(spec.graph.node(node).attributes).kind));
    }
    executor.put_targets(0, batch.targets);
    executor.forward(0, {});
    executor.backward(0);
    executor.release(0);
  }
  std::vector<KindTime> times = timer.times();
  std::sort(times.begin(), times.end(), [](const KindTime& a, const KindTime& b) {
    return a.forward_s + a.backward_s > b.forward_s + b.backward_s;
  });
  double total = 0;
  for (const KindTime& time : times) total += time.forward_s + time.backward_s;
  for (const KindTime& time : times) {
    fmt::print("    {:<32} {:5.1f} %  forward {:8.3f} ms  backward {:8.3f} ms\n", time.kind,
               100 * (time.forward_s + time.backward_s) / total, time.forward_s / steps * 1e3,
               time.backward_s / steps * 1e3);
  }
}

void run(const Arguments& arguments) {
  for (const std::string& model : arguments.models) {
    for (const int threads : arguments.threads) {
      const TrainingSpec spec = training_of(model, arguments, threads);
      print_speed(model, spec, arguments);
      print_shares(spec, std::min(arguments.steps, 5));
    }
  }
}

}  // namespace
}  // namespace heteroperf

int main(int count, char** values) {
  try {
    heteroperf::run(heteroperf::parse(count, values));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
