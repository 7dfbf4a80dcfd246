// The operators of devices: which of them a device has, whether they compute what they must, and
// how much of the device they use.
//
// A device's efficiency on a workload is the sum of the least times over the sum of ours, in one
// micro-batch of it: for every operation the least of ours and LibTorch's, on the same device with
// the same instruction set. So it is at most 1. Beside it stands the same against the measured
// roofline: the most of operations over the peak and bytes over the memory's rate, but no more than
// our time. Portability is the harmonic mean of the devices' efficiencies, and 0 where one of them
// lacks an operator (Pennycook, Sewall, Lee 2016, arXiv:1611.07409).
//
// LibTorch's libraries take one instruction set per process, so a report is of one device; reports
// of other processes are read from their JSON.
#include "suite/probe/operator_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/comm/discovery/rank_descriptor.hpp"
#include "runners/comm/world.hpp"
#include "runners/plan/times/measured_operations.hpp"
#include "suite/config/reproduce.hpp"
#include "suite/probe/cluster_report.hpp"
#include "suite/probe/operation_measurement.hpp"
#include "suite/program/catalog.hpp"
#include "suite/program/signals.hpp"
#include "suite/watch/memory_rate.hpp"

namespace heteroperf {
namespace {

constexpr double roofline_s = 0.3;     // for a peak, and for the memory
constexpr double seconds_each = 0.02;  // for an operation in a turn, about

/// A workload of the catalog at one size.
Workload workload_of(const std::string& name, const std::string& size, Precision precision) {
  WorkloadRequest request;
  request.size = request.model = size;
  request.precision = precision;
  return find_workload(name).make(request, {});
}

/// Rates of this machine that the roofline is made of.
struct Roofline {
  double ops_per_second = 0, bytes_per_second = 0;  ///< 0: not measured

  void see(const OperatorTime& time) {
    const double seconds = time.ours.forward_s + time.ours.backward_s;
    if (seconds > 0) ops_per_second = std::max(ops_per_second, time.operations / seconds);
  }
  std::optional<double> seconds(const OperatorTime& time) const {
    if (ops_per_second == 0 || bytes_per_second == 0) return std::nullopt;
    return std::max(time.operations / ops_per_second, time.bytes / bytes_per_second);
  }
};

void require_no_stop() {
  if (stop_signal() == nullptr) return;
  throw Error(ErrorKind::interrupted, {{"the operators' measurement was stopped", "", ""}});
}

double least_of(std::span<const double> values) { return *std::ranges::min_element(values); }

/// Sums over operations of one name, or of a whole step.
struct TimeSums {
  double ours_s = 0, least_s = 0, roofline_s = 0, operations = 0, compared_s = 0;
  bool has_roofline = true, is_measured = false;

  void add(const OperatorTime& time, const Roofline& roofline) {
    if (time.ours.repetitions == 0) return;
    is_measured = true;
    const auto least = [](double ours, double library) {
      return library > 0 ? std::min(ours, library) : ours;
    };
    ours_s += time.count * (time.ours.forward_s + time.ours.backward_s);
    least_s += time.count * (least(time.ours.forward_s, time.library_forward_s) +
                             least(time.ours.backward_s, time.library_backward_s));
    operations += time.count * time.operations;
    if (time.library_forward_s > 0) {
      compared_s += time.count * (time.ours.forward_s + time.ours.backward_s);
    }
    const auto bound = roofline.seconds(time);
    has_roofline &= bound.has_value();
    // What lies in a cache is faster than memory: it is at its bound.
    roofline_s +=
        time.count * std::min(bound.value_or(0), time.ours.forward_s + time.ours.backward_s);
  }
  std::optional<double> efficiency() const {
    return is_measured && ours_s > 0 ? std::optional(least_s / ours_s) : std::nullopt;
  }
  std::optional<double> compared() const {
    return is_measured && ours_s > 0 ? std::optional(compared_s / ours_s) : std::nullopt;
  }
  std::optional<double> roofline_efficiency() const {
    if (!is_measured || !has_roofline || ours_s <= 0) return std::nullopt;
    return roofline_s / ours_s;
  }
};

/// Checks and times one device.
class DeviceReport {
 public:
  DeviceReport(const OperatorsRequest& request, const RankDevice& device, Engine& engine,
               const std::function<void(const std::string&)>& progress)
      : request_(request),
        device_(device),
        engine_(engine),
        progress_(progress),
        cores_(usable_cores()),
        threads_(request.usable_threads()) {
    report_.libtorch = engine.libtorch_version();
    if (!device.on_gpu) return;
    gpu_ = 0;
    report_.gpu = engine.cuda_devices().front().name;
  }

  OperatorReport run() {
    for (const std::string& name : request_.named_precisions()) {
      const Precision precision = parse_precision(name);
      require_no_stop();
      if (!device_.has_precision(to_string(precision))) {
        lack(precision);
        continue;
      }
      check(precision);
      require_no_stop();
      if (!request_.check) time(precision);
    }
    return std::move(report_);
  }

 private:
  OperatorRow& row(const std::string& name, Precision precision) {
    for (OperatorRow& known : report_.operators) {
      if (known.name == name && known.precision == to_string(precision)) return known;
    }
    OperatorRow& made = report_.operators.emplace_back();
    made.name = name;
    made.device = device_.name;
    made.precision = to_string(precision);
    return made;
  }

  /// Nothing of a precision that the device has not.
  void lack(Precision precision) {
    for (const std::string& name : request_.named_workloads()) {
      const Workload workload = workload_of(name, request_.size_of(name), Precision::fp32);
      for (const std::string& operation : engine_.operator_names(workload.graph)) {
        row(operation, precision).status = "missing";
      }
      report_.devices.push_back(
          {name + " " + workload.size, device_.name, to_string(precision), {}, {}, {}});
    }
  }

  void check(Precision precision) {
    ConformanceRequest asked;
    asked.precision = precision;
    asked.quick = request_.quick || !request_.check;
    asked.compare = request_.check;
    asked.seed = request_.seed;
    asked.threads = threads_;
    asked.gpu = gpu_;
    const auto add = [&](const std::string& name, const std::string& size, std::int64_t samples) {
      asked.workloads.push_back(
          {std::make_shared<const ModelGraph>(workload_of(name, size, precision).graph), samples});
    };
    if (!request_.check) {
      for (const std::string& name : request_.named_workloads()) {
        add(name, request_.size_of(name), 1);
      }
    } else {
      const auto names = request_.named_workloads();
      const bool text = std::ranges::find(names, "llm") != names.end();
      const bool images = std::ranges::find(names, "image") != names.end();
      if (text) add("llm", "nano", request_.quick ? 1 : 4);
      if (images) add("image", "resnet18", request_.quick ? 1 : 4);
      if (text && !request_.quick) add("llm", request_.size_of("llm"), 2);
      const std::string& model = request_.model;
      if (images && !request_.quick) add("image", model.empty() ? "resnet50" : model, 2);
    }
    progress_(fmt::format("{} {}: {} operators", device_.name, to_string(precision),
                          request_.check ? "checking" : "listing"));
    for (const OperatorVerdict& verdict : engine_.check_operators(asked)) {
      OperatorRow& known = row(verdict.name, precision);
      known.substituted.assign(verdict.substituted.begin(), verdict.substituted.end());
      known.status = !verdict.substituted.empty() ? "substituted" : "native";
      if (!request_.check) continue;
      if (verdict.wrong_cases > 0) known.status = "wrong";
      known.worst_error = verdict.worst;
      known.factor = verdict.factor;
      known.absolute_error = verdict.largest_absolute;
      known.relative_error = verdict.largest_relative;
      known.nmse = verdict.normalised_square;
      known.bias = verdict.worst_bias;
      known.cases = verdict.cases;
      known.results = verdict.results;
      known.units.assign(verdict.units.begin(), verdict.units.end());
      known.repeatable = verdict.repeatable;
      known.wrong = verdict.wrong;
      if (verdict.wrong_cases > verdict.wrong.size()) {
        known.wrong.push_back(
            fmt::format("and {} more cases", verdict.wrong_cases - verdict.wrong.size()));
      }
    }
  }

  /// The host's own are of the class that `probe` makes of it, so that plans for its clusters have
  /// them.
  std::string class_of_times() const {
    if (device_.on_gpu || !device_.is_plain()) return device_.name;
    return cpu_class_name(describe_this_rank("", ""), threads_);
  }

  Roofline roofline(Precision precision) {
    Roofline rates;
    if (gpu_) {
      rates.ops_per_second =
          engine_.find_fastest_cuda_product(precision, *gpu_, roofline_s).ops_per_second;
      if (!memory_rate_) memory_rate_ = engine_.measure_cuda_memory(*gpu_, roofline_s);
      rates.bytes_per_second = *memory_rate_;
      return rates;
    }
    rates.ops_per_second =
        engine_.find_fastest_product(precision, threads_, roofline_s).ops_per_second;
    if (!memory_rate_) {
      run_on_threads(1, {}, [&](World& world) {
        const MemoryRate rate =
            measure_memory_rate(*world.communicator, cores_.cpus, threads_, roofline_s);
        memory_rate_ = rate.bytes_per_second.value_or(0);
        if (!rate.bytes_per_second) progress_("no roofline: " + rate.reason);
      });
    }
    rates.bytes_per_second = *memory_rate_;
    return rates;
  }

  /// Operations of one name and shape may still differ, such as the first layer, which passes no
  /// gradient on: those behind the first are numbered.
  void add_timings(const std::string& workload, Precision precision, const OperatorTime& time) {
    OperatorTiming timing;
    timing.workload = workload;
    timing.device = device_.name;
    timing.precision = to_string(precision);
    timing.name = time.name;
    timing.shape = time.shape;
    timing.count = time.count;
    const auto is_same = [&](const OperatorTiming& known) {
      return known.workload == workload && known.device == timing.device &&
             known.precision == timing.precision && known.name == timing.name &&
             known.shape == timing.shape;
    };
    for (int number = 2; std::ranges::any_of(report_.timings, is_same); ++number) {
      timing.shape = fmt::format("{}#{}", time.shape, number);
    }
    for (const auto& [pass, samples] : {std::pair("forward", &time.forward_turns_s),
                                        std::pair("backward", &time.backward_turns_s)}) {
      if (samples->empty()) continue;
      timing.pass = pass;
      timing.samples_s = *samples;
      timing.least_s = least_of(*samples);
      timing.ci95.reset();
      if (samples->size() > 1) timing.ci95 = bootstrap_interval(*samples, least_of);
      report_.timings.push_back(timing);
    }
  }

  void time(Precision precision) {
    Roofline rates = roofline(precision);
    std::map<std::string, TimeSums> by_name;
    for (const std::string& name : request_.named_workloads()) {
      progress_(fmt::format("{} {}: timing {}", device_.name, to_string(precision), name));
      const Workload workload = workload_of(name, request_.size_of(name), precision);
      const ModelOperations model = model_operations(workload.graph, precision);
      OperationProbe probe = operation_probe(workload, model, workload.micro_batch, threads_);
      probe.seconds_each = seconds_each;
      probe.gpu = gpu_;
      probe.stop = [] { return stop_signal() != nullptr; };
      const std::vector<OperatorTime> times = engine_.time_operators(probe);
      require_no_stop();
      // The peak is at least what was seen.
      for (const OperatorTime& operation : times) rates.see(operation);
      TimeSums step;
      const std::vector<std::string> needed = engine_.operator_names(workload.graph);
      const bool lacks = std::ranges::any_of(needed, [&](const std::string& operation) {
        return row(operation, precision).status != "native";
      });
      std::vector<OperationSeconds> seconds;
      for (const OperatorTime& operation : times) {
        step.add(operation, rates);
        by_name[operation.name].add(operation, rates);
        seconds.push_back(operation.ours);
        add_timings(name + " " + workload.size, precision, operation);
      }
      DeviceEfficiency& device = report_.devices.emplace_back();
      device.workload = name + " " + workload.size;
      device.device = device_.name;
      device.precision = to_string(precision);
      if (!lacks) {
        device.efficiency = step.efficiency();
        device.roofline_efficiency = step.roofline_efficiency();
      }
      device.compared = step.compared();
      const ProbeSource source{class_of_times(), host_name(), utc_now(),
                               name + " " + workload.size};
      add_measured(model, probe.samples, precision, seconds, source, report_.matrix);
    }
    for (const auto& [name, sums] : by_name) {
      if (!sums.is_measured) continue;
      OperatorRow& known = row(name, precision);
      if (sums.operations > 0) known.ops_per_second = sums.operations / sums.ours_s;
      known.seconds = sums.ours_s;
      known.least_s = sums.least_s;
      known.efficiency = sums.efficiency();
      known.roofline_efficiency = sums.roofline_efficiency();
    }
  }

  const OperatorsRequest& request_;
  const RankDevice& device_;
  Engine& engine_;
  const std::function<void(const std::string&)>& progress_;
  UsableCores cores_;
  int threads_;
  std::optional<int> gpu_;
  std::optional<double> memory_rate_;
  OperatorReport report_;
};

/// The same thing twice would be measured twice and count twice.
void add_repeated(const char* what, const std::vector<std::string>& names, ProblemList& problems) {
  std::set<std::string> seen, told;
  for (const std::string& name : names) {
    if (seen.insert(name).second || !told.insert(name).second) continue;
    problems.add(fmt::format("{} {} is named twice", what, name), "", "Name it once");
  }
}

}  // namespace

std::vector<std::string> OperatorsRequest::named_workloads() const {
  return workloads.empty() ? std::vector<std::string>{"llm", "image"} : workloads;
}

std::vector<std::string> OperatorsRequest::named_precisions() const {
  if (!precisions.empty()) return precisions;
  return score ? std::vector<std::string>{"fp32"} : std::vector<std::string>{"fp32", "bf16"};
}

std::vector<std::string> OperatorsRequest::sized_workloads() const {
  std::vector<std::string> result;
  for (const std::string& name : named_workloads()) result.push_back(name + " " + size_of(name));
  return result;
}

std::string OperatorsRequest::size_of(const std::string& workload) const {
  if (workload == "image") return model.empty() ? "resnet18" : model;
  return size.empty() ? "micro" : size;
}

int OperatorsRequest::usable_threads() const { return threads ? *threads : usable_cores().count(); }

std::string OperatorsRequest::words() const {
  std::string words = " ops";
  for (const std::string& workload : named_workloads()) words += " " + shell_quoted(workload);
  for (const std::string& workload : named_workloads()) {
    // A check has sizes of its own.
    if (check && (workload == "image" ? model : size).empty()) continue;
    words += (workload == "image" ? " --model " : " --size ") + shell_quoted(size_of(workload));
  }
  // Only a precision that was asked for must be there.
  if (!precisions.empty()) words += fmt::format(" --precision {}", fmt::join(precisions, ","));
  words +=
      fmt::format(" --device {} --threads {} --seed {}",
                  shell_quoted(fmt::format("{}", fmt::join(devices, ","))), usable_threads(), seed);
  for (const auto& [asked, flag] :
       {std::pair(check, " --check"), {quick, " --quick"}, {score, " --score"}}) {
    if (asked) words += flag;
  }
  return words;
}

void OperatorsRequest::validate(ProblemList& problems) const {
  for (const std::string& name : named_workloads()) {
    collect_problems(problems, [&] {
      if (find_workload(name).program != ProgramKind::training) {
        throw UserError(fmt::format("{} has no operators of its own", name),
                        "a search trains many models", "Name llm or image");
      }
      workload_of(name, size_of(name), Precision::fp32);
    });
  }
  for (const auto& [flag, value, workload] :
       {std::tuple("--size", &size, "llm"), {"--model", &model, "image"}}) {
    const std::vector<std::string> names = named_workloads();
    if (value->empty() || std::ranges::find(names, workload) != names.end()) continue;
    problems.add(fmt::format("{} {} means nothing for {}", flag, *value, fmt::join(names, ", ")),
                 fmt::format("it is for {}", workload), "Leave it out");
  }
  add_repeated("workload", workloads, problems);
  add_repeated("--precision", precisions, problems);
  std::vector<std::string> read;
  for (const std::string& name : precisions) {
    collect_problems(problems, [&] { parse_precision(name); });
  }
  for (const std::string& name : devices) {
    collect_problems(problems, [&] {
      const RankDevice device = read_device(name);
      read.push_back(device.name);
      for (const std::string& precision : precisions) {
        if (device.has_precision(precision)) continue;
        problems.add(fmt::format("{} has no {}", device.name, precision),
                     fmt::format("its precisions are {}", fmt::join(device.chip->precisions, ", ")),
                     "Use another --precision");
      }
      if (has_instructions(device.kernels)) return;
      throw UserError(fmt::format("no device {}", name),
                      fmt::format("this processor lacks {}", to_string(device.kernels)),
                      "`heteroperf list devices` names what it has");
    });
  }
  add_repeated("--device", read, problems);
  if (quick && !check) {
    problems.add("--quick without --check", "only a check has fewer cases", "Add --check");
  }
  if (quick && !(size + model).empty()) {
    problems.add("--quick with --size or --model", "a quick check has shapes of its own",
                 "Leave one of both out");
  }
  if (check && score) {
    problems.add("--check and --score", "a check has no times", "Run it once with each");
  }
  const int cores = usable_cores().count();
  if (threads && (*threads < 1 || *threads > cores)) {
    problems.add(fmt::format("--threads {} is out of range", *threads),
                 fmt::format("1 to {}, the cores that are usable here", cores));
  }
}

bool OperatorReport::is_right() const {
  return std::ranges::none_of(operators,
                              [](const OperatorRow& row) { return row.status == "wrong"; });
}

OperatorReport report_operators(const OperatorsRequest& request, const RankDevice& device,
                                const std::function<void(const std::string&)>& progress) {
  limit_libraries({device});
  const std::shared_ptr<Engine> engine = load_engine();
  engine->use_device(device, FallbackRules::parse("allow"));
  return DeviceReport(request, device, *engine, progress).run();
}

}  // namespace heteroperf
