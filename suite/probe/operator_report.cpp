// The operators of devices: which of them a device has, whether they compute what they must, and
// how much of the device they use.
//
// A device's efficiency on a workload is the sum of the least times over the sum of ours, in one
// micro-batch of it: for every operation the least of ours and LibTorch's, on the same device with
// the same instruction set. So it is at most 1. Beside it stands the same against the measured
// roofline: the most of operations over the peak and bytes over the memory's rate. Portability is
// the harmonic mean of the devices' efficiencies, and 0 where one of them lacks an operator
// (Pennycook, Sewall, Lee 2016, arXiv:1611.07409).
//
// LibTorch's libraries take one instruction set per process, so a report is of one device; reports
// of other processes are read from their JSON.
#include "suite/probe/operator_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "results/text/text_escapes.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/comm/world.hpp"
#include "runners/plan/times/measured_operations.hpp"
#include "suite/probe/operation_measurement.hpp"
#include "suite/program/catalog.hpp"
#include "suite/watch/memory_rate.hpp"

namespace heteroperf {
namespace {

constexpr double roofline_s = 0.3;  ///< for a peak, and for the memory

/// A workload of the catalog at one size.
Workload workload_of(const std::string& name, const std::string& size, Precision precision) {
  WorkloadRequest request;
  request.size = request.model = size;
  request.precision = precision;
  return find_workload(name).make(request, {});
}

std::vector<std::string> workload_names_of(const OperatorsRequest& request) {
  return request.workloads.empty() ? std::vector<std::string>{"llm", "image"} : request.workloads;
}

std::string size_of(const OperatorsRequest& request, const std::string& workload) {
  return workload == "image" ? request.model : request.size;
}

std::vector<Precision> precisions_of(const OperatorsRequest& request) {
  if (request.precisions.empty()) return {Precision::fp32, Precision::bf16};
  std::vector<Precision> result;
  for (const std::string& name : request.precisions) result.push_back(parse_precision(name));
  return result;
}

/// Rates of this machine that the roofline is made of.
struct Roofline {
  double ops_per_second = 0, bytes_per_second = 0;  ///< 0: not measured

  std::optional<double> seconds(const OperatorTime& time) const {
    if (ops_per_second == 0 || bytes_per_second == 0) return std::nullopt;
    return std::max(time.operations / ops_per_second, time.bytes / bytes_per_second);
  }
};

/// Sums over operations of one name, or of a whole step.
struct TimeSums {
  double ours_s = 0, least_s = 0, roofline_s = 0, operations = 0;
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
    const auto bound = roofline.seconds(time);
    has_roofline &= bound.has_value();
    roofline_s += time.count * bound.value_or(0);
  }
  std::optional<double> efficiency() const {
    return is_measured && ours_s > 0 ? std::optional(least_s / ours_s) : std::nullopt;
  }
  std::optional<double> roofline_efficiency() const {
    if (!is_measured || !has_roofline || ours_s <= 0) return std::nullopt;
    return std::min(1.0, roofline_s / ours_s);
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
        threads_(request.threads > 0 ? request.threads : cores_.count()) {
    if (device.on_gpu) gpu_ = 0;
  }

  OperatorReport run() {
    for (const Precision precision : precisions_of(request_)) {
      if (!device_.has_precision(to_string(precision))) {
        lack(precision);
        continue;
      }
      check(precision);
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
    for (const std::string& name : workload_names_of(request_)) {
      const Workload workload = workload_of(name, size_of(request_, name), Precision::fp32);
      for (const std::string& operation : engine_.operator_names(workload.graph)) {
        row(operation, precision).status = "missing";
      }
      report_.devices.push_back({name, device_.name, to_string(precision), {}, {}});
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
      for (const std::string& name : workload_names_of(request_)) {
        add(name, size_of(request_, name), 1);
      }
    } else {
      const auto names = workload_names_of(request_);
      const bool text = std::ranges::find(names, "llm") != names.end();
      const bool images = std::ranges::find(names, "image") != names.end();
      if (text) add("llm", "nano", request_.quick ? 1 : 4);
      if (images) add("image", "resnet18", request_.quick ? 1 : 4);
      if (text && !request_.quick) add("llm", request_.size, 2);
      if (images && !request_.quick) add("image", "resnet50", 2);
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

  Roofline roofline(Precision precision) {
    Roofline rates;
    if (gpu_) {
      rates.ops_per_second =
          engine_.find_fastest_cuda_product(precision, *gpu_, roofline_s).ops_per_second;
      return rates;  // a GPU's memory has no measurement of its own yet
    }
    rates.ops_per_second =
        engine_.find_fastest_product(precision, threads_, roofline_s).ops_per_second;
    if (!memory_rate_) {
      run_on_threads(1, {}, [&](World& world) {
        memory_rate_ = measure_memory_rate(*world.communicator, cores_.cpus, threads_, roofline_s)
                           .bytes_per_second.value_or(0);
      });
    }
    rates.bytes_per_second = *memory_rate_;
    return rates;
  }

  void time(Precision precision) {
    const Roofline rates = roofline(precision);
    std::map<std::string, TimeSums> by_name;
    for (const std::string& name : workload_names_of(request_)) {
      progress_(fmt::format("{} {}: timing {}", device_.name, to_string(precision), name));
      const Workload workload = workload_of(name, size_of(request_, name), precision);
      const ModelOperations model = model_operations(workload.graph, precision);
      OperationProbe probe{workload.graph, model, workload.data};
      probe.recipe = workload.recipe;
      probe.precision = precision;
      probe.samples = workload.micro_batch;
      probe.threads = threads_;
      probe.gpu = gpu_;
      const std::vector<OperatorTime> times = engine_.time_operators(probe);
      TimeSums step;
      std::vector<OperationSeconds> seconds;
      for (const OperatorTime& operation : times) {
        step.add(operation, rates);
        by_name[operation.name].add(operation, rates);
        seconds.push_back(operation.ours);
      }
      report_.devices.push_back({name + " " + workload.size, device_.name, to_string(precision),
                                 step.efficiency(), step.roofline_efficiency()});
      const ProbeSource source{device_.name, host_name(), utc_now(), name + " " + workload.size};
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

Tone tone_of(const std::string& status) {
  if (status == "native") return Tone::good;
  return status == "substituted" ? Tone::doubtful : Tone::bad;
}

/// A list, absent where it is empty.
template <class T>
Datum listed(const std::vector<T>& list) {
  return list.empty() ? Datum() : Datum(list);
}

Table operator_table(const OperatorReport& report) {
  constexpr Audience programs = Audience::programs;
  using Row = OperatorRow;
  return table_of(
      "operators", report.operators,
      std::vector<ColumnOf<OperatorRow>>{
          {{"name", "operator", Unit::none}, [](const Row& r) { return Datum(r.name); }},
          {{"device", "device", Unit::none}, [](const Row& r) { return Datum(r.device); }},
          {{"precision", "precision", Unit::none}, [](const Row& r) { return Datum(r.precision); }},
          {{"status", "status", Unit::none},
           [](const Row& r) { return Datum(r.status).judged(tone_of(r.status)); }},
          {{"ops_per_second", "rate", Unit::operations_per_second},
           [](const Row& r) { return Datum(r.ops_per_second); }},
          {{"efficiency", "of the best", Unit::fraction},
           [](const Row& r) { return Datum(r.efficiency); }},
          {{"roofline_efficiency", "of the roofline", Unit::fraction},
           [](const Row& r) { return Datum(r.roofline_efficiency); }},
          {{"seconds", "time", Unit::seconds}, [](const Row& r) { return Datum(r.seconds); }},
          {{"least_s", "least time", Unit::seconds, programs},
           [](const Row& r) { return Datum(r.least_s); }},
          {{"worst_error", "worst error", Unit::ratio},
           [](const Row& r) { return Datum(r.worst_error); }},
          {{"factor", "c", Unit::ratio}, [](const Row& r) { return Datum(r.factor); }},
          {{"absolute_error", "largest absolute", Unit::ratio, programs},
           [](const Row& r) { return Datum(r.absolute_error); }},
          {{"relative_error", "largest relative", Unit::ratio, programs},
           [](const Row& r) { return Datum(r.relative_error); }},
          {{"nmse", "NMSE", Unit::ratio, programs}, [](const Row& r) { return Datum(r.nmse); }},
          {{"bias", "standard errors of the mean", Unit::ratio, programs},
           [](const Row& r) { return Datum(r.bias); }},
          {{"cases", "cases", Unit::count}, [](const Row& r) { return Datum(r.cases); }},
          {{"results", "results", Unit::count, programs},
           [](const Row& r) { return Datum(r.results); }},
          {{"units_in_last_place", "units in the last place", Unit::count, programs},
           [](const Row& r) { return listed(r.units); }},
          {{"repeatable", "same bits again", Unit::none},
           [](const Row& r) { return Datum(r.repeatable); }},
          {{"substituted", "by the host", Unit::none},
           [](const Row& r) { return listed(r.substituted); }},
          {{"wrong", "wrong", Unit::none, programs},
           [](const Row& r) { return listed(r.wrong); }}});
}

/// Reads one key of a row, where it is there.
template <class T>
void take(const nlohmann::json& row, const char* key, T& value) {
  if (row.contains(key)) value = row.at(key).get<T>();
}
template <class T>
void take(const nlohmann::json& row, const char* key, std::optional<T>& value) {
  if (row.contains(key)) value = row.at(key).get<T>();
}

OperatorRow row_from(const nlohmann::json& json) {
  OperatorRow row;
  take(json, "name", row.name);
  take(json, "device", row.device);
  take(json, "precision", row.precision);
  take(json, "status", row.status);
  take(json, "substituted", row.substituted);
  take(json, "ops_per_second", row.ops_per_second);
  take(json, "efficiency", row.efficiency);
  take(json, "roofline_efficiency", row.roofline_efficiency);
  take(json, "seconds", row.seconds);
  take(json, "least_s", row.least_s);
  take(json, "worst_error", row.worst_error);
  take(json, "factor", row.factor);
  take(json, "absolute_error", row.absolute_error);
  take(json, "relative_error", row.relative_error);
  take(json, "nmse", row.nmse);
  take(json, "bias", row.bias);
  take(json, "cases", row.cases);
  take(json, "results", row.results);
  take(json, "units_in_last_place", row.units);
  take(json, "repeatable", row.repeatable);
  take(json, "wrong", row.wrong);
  return row;
}

}  // namespace

void OperatorsRequest::validate(ProblemList& problems) const {
  for (const std::string& name : workloads) {
    collect_problems(problems, [&] {
      if (find_workload(name).program == ProgramKind::training) return;
      throw UserError(fmt::format("{} has no operators of its own", name),
                      "a search trains many models", "Name llm or image");
    });
  }
  for (const std::string& name : precisions) {
    collect_problems(problems, [&] { parse_precision(name); });
  }
  for (const std::string& name : devices) {
    collect_problems(problems, [&] {
      const RankDevice device = read_device(name);
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
  if (quick && !check) {
    problems.add("--quick without --check", "only a check has fewer cases", "Add --check");
  }
  if (check && score) {
    problems.add("--check and --score", "a check has no times", "Run it once with each");
  }
  if (threads < 0) problems.add(fmt::format("--threads {}", threads), "at least 1");
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

std::optional<double> portability_score(const std::vector<DeviceEfficiency>& devices,
                                        const std::string& workload) {
  double inverses = 0, count = 0;
  for (const DeviceEfficiency& device : devices) {
    if (device.workload != workload) continue;
    if (!device.efficiency) return 0;
    inverses += 1 / *device.efficiency;
    count += 1;
  }
  return count > 0 ? std::optional(count / inverses) : std::nullopt;
}

Document operators_document(const OperatorsRequest& request, const OperatorReport& report) {
  Document document{"heteroperf-operators"};
  document.data("checked", "checked", Unit::none, request.check);
  document.data("seed", "seed", Unit::count, request.seed);
  Table table = operator_table(report);
  // A score is one number and the devices' table.
  if (request.score) table.audience = Audience::programs;
  document.table(std::move(table));
  if (request.check) {
    for (const OperatorRow& row : report.operators) {
      for (const std::string& how : row.wrong) {
        document.line(fmt::format("wrong on {} in {}: {}", row.device, row.precision, how));
      }
    }
    return document;
  }
  using Row = DeviceEfficiency;
  document.table(table_of(
      "devices", report.devices,
      std::vector<ColumnOf<DeviceEfficiency>>{
          {{"workload", "workload", Unit::none}, [](const Row& d) { return Datum(d.workload); }},
          {{"device", "device", Unit::none}, [](const Row& d) { return Datum(d.device); }},
          {{"precision", "precision", Unit::none}, [](const Row& d) { return Datum(d.precision); }},
          {{"efficiency", "of the best", Unit::fraction},
           [](const Row& d) { return Datum(d.efficiency); }},
          {{"roofline_efficiency", "of the roofline", Unit::fraction},
           [](const Row& d) { return Datum(d.roofline_efficiency); }}}));
  std::vector<std::pair<std::string, double>> scores;
  std::optional<double> least;
  for (const DeviceEfficiency& device : report.devices) {
    const auto known = std::ranges::find_if(
        scores, [&](const auto& score) { return score.first == device.workload; });
    if (known != scores.end()) continue;
    const auto score = portability_score(report.devices, device.workload);
    if (!score) continue;
    scores.emplace_back(device.workload, *score);
    least = least ? std::min(*least, *score) : *score;
  }
  Table by_workload{
      "scores",
      "",
      {{"workload", "workload", Unit::none}, {"score", "portability", Unit::fraction}}};
  for (const auto& [workload, score] : scores) by_workload.add({workload, score});
  document.table(std::move(by_workload));
  document.field("score", "performance portability", Unit::fraction, Datum(least),
                 "the least of the workloads'");
  return document;
}

void add_operators(const std::string& json, const std::string& where, OperatorReport& report) {
  const Json document = parse_strict_json(json, where, "heteroperf-operators");
  const nlohmann::json plain = nlohmann::json::parse(document.dump());
  for (const auto& row : plain.at("operators")) report.operators.push_back(row_from(row));
  if (!plain.contains("devices")) return;
  for (const auto& row : plain.at("devices")) {
    DeviceEfficiency& device = report.devices.emplace_back();
    take(row, "workload", device.workload);
    take(row, "device", device.device);
    take(row, "precision", device.precision);
    take(row, "efficiency", device.efficiency);
    take(row, "roofline_efficiency", device.roofline_efficiency);
  }
}

std::string operators_junit(const OperatorReport& report) {
  std::string cases;
  std::size_t failures = 0, skipped = 0;
  for (const OperatorRow& row : report.operators) {
    std::string content;
    if (row.status == "wrong") {
      ++failures;
      content = fmt::format("    <failure message=\"{}\"/>\n",
                            html_text(fmt::format("{}", fmt::join(row.wrong, "; "))));
    } else if (row.status == "missing") {
      ++skipped;
      content = "    <skipped message=\"the device lacks it\"/>\n";
    }
    cases += fmt::format("  <testcase classname=\"heteroperf.ops.{}.{}\" name=\"{}\"",
                         html_text(row.device), row.precision, html_text(row.name));
    cases += content.empty() ? "/>\n" : fmt::format(">\n{}  </testcase>\n", content);
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"heteroperf ops\" tests=\"{}\" failures=\"{}\" errors=\"0\" "
      "skipped=\"{}\">\n{}</testsuite>\n",
      report.operators.size(), failures, skipped, cases);
}

}  // namespace heteroperf
