// The heterogeneous speed ratio (HSR) says how much of the speed of its parts a mixed cluster
// keeps: the throughput of the mix over the sum of the throughputs of each class of devices alone.
// 1 means that mixing costs nothing. The ratio only has a meaning when every run did the same work
// under the same rules and the classes alone add up to the very devices of the mix, so most of this
// file checks that, and lists every field that differs at once.
//
// Throughputs are means over repeated runs. The interval comes from the delta method: the relative
// error of a ratio is the root of the summed squares of the relative errors above and below the
// line, and the degrees of freedom of such a sum follow Welch and Satterthwaite.

#include "results/comparison/hetero_ratio.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "metrics/base/error.hpp"
#include "metrics/log_ratio.hpp"
#include "metrics/score.hpp"
#include "metrics/statistics.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

/// Fields that every run of the mix and of the classes must share, by their names in the record.
constexpr std::pair<const char*, std::string RunDigest::*> shared_fields[] = {
    {"workload.name", &RunDigest::workload},
    {"workload.size", &RunDigest::size},
    {"workload.graph_hash", &RunDigest::graph_hash},
    {"workload.data_fingerprint", &RunDigest::data_fingerprint},
    {"workload.precision", &RunDigest::precision},
    {"validity.ruleset", &RunDigest::ruleset}};

std::string samples_text(const RunDigest& run) {
  return run.samples_per_step ? fmt::format("{}", *run.samples_per_step) : "not recorded";
}

/// Threads of a rank of each class.
std::map<std::string, std::uint64_t> threads_of(const RunDigest& run) {
  std::map<std::string, std::uint64_t> threads;
  for (const DeviceShare& share : run.devices) threads[share.device_class] = share.threads;
  return threads;
}

/// Adds a problem for every field in which `run` differs from `mix`. A class that the mix does not
/// have is found by check_classes().
void compare_fields(const RunDigest& mix, const RunDigest& run, std::vector<Problem>& problems) {
  const auto differ = [&](const std::string& name, const std::string& a, const std::string& b) {
    if (a == b) return;
    problems.push_back(
        {name + " differs", fmt::format("{} in {}, {} in {}", a, mix.run_id, b, run.run_id), ""});
  };
  for (const auto& [name, member] : shared_fields) differ(name, mix.*member, run.*member);
  // Smaller steps, or fewer threads, make a class alone slower than it is in the mix.
  differ("workload.samples_per_step", samples_text(mix), samples_text(run));
  const auto in_mix = threads_of(mix);
  for (const auto& [name, threads] : threads_of(run)) {
    const auto mixed = in_mix.find(name);
    if (mixed == in_mix.end()) continue;
    differ("threads of class " + name, fmt::format("{}", mixed->second),
           fmt::format("{}", threads));
  }
  // The build type is the last field of a key.
  differ("program.build_type", mix.key.back().value, run.key.back().value);
  differ("scale.emulated", mix.emulated ? "true" : "false", run.emulated ? "true" : "false");
}

std::string counts_text(const std::map<std::string, std::uint64_t>& counts) {
  const std::string text = joined(counts, ", ", [](const auto& entry) {
    return fmt::format("{} x {}", entry.second, entry.first);
  });
  return text.empty() ? "none" : text;
}

/// Each set must be one class, and the counts of all sets must be those of the mix.
void check_classes(const RunSet& mix, const std::vector<RunSet>& alone,
                   std::vector<Problem>& problems) {
  const auto wanted = mix.runs.front().class_counts();
  if (wanted.size() < 2) {
    problems.push_back({mix.runs.front().run_id + " is no mix",
                        "its devices are " + counts_text(wanted), "Name the mixed run first."});
  }
  std::map<std::string, std::uint64_t> sum;
  for (const RunSet& set : alone) {
    for (const RunDigest& run : set.runs) {
      const auto counts = run.class_counts();
      if (counts == set.runs.front().class_counts() && counts.size() == 1) continue;
      problems.push_back({run.run_id + " is no run of one class alone",
                          "its devices are " + counts_text(counts), ""});
    }
    for (const auto& [name, count] : set.runs.front().class_counts()) sum[name] += count;
  }
  if (problems.empty() && sum != wanted) {
    problems.push_back(
        {"the classes alone do not add up to the mix",
         fmt::format("{} alone, {} in the mix", counts_text(sum), counts_text(wanted)),
         "Give one run, or a folder of repeated runs, per class."});
  }
}

/// Runs without a recorded model are not refused: there is nothing to hold against the other.
void require_same_gpus(const RunDigest& a, const RunDigest& b, std::vector<Problem>& problems) {
  if (a.gpus.empty() || b.gpus.empty() || a.gpus == b.gpus) return;
  problems.push_back(
      {"models of GPUs differ",
       fmt::format("{} in {}, {} in {}", a.gpus_text(), a.run_id, b.gpus_text(), b.run_id), ""});
}

/// The classes alone may not use a model that the mix does not have, nor more devices of one. A
/// class need not name its model, and records of older programs have no models of GPUs at all. An
/// emulated mix is not checked: its devices are what their description says.
void check_gpus(const RunSet& mix, const std::vector<RunSet>& alone,
                std::vector<Problem>& problems) {
  const RunDigest& mixed = mix.runs.front();
  if (mixed.emulated) return;
  for (const RunDigest& run : mix.runs) require_same_gpus(mixed, run, problems);
  RunDigest sum;
  for (const RunSet& set : alone) {
    for (const RunDigest& run : set.runs) require_same_gpus(set.runs.front(), run, problems);
    for (const auto& [model, count] : set.runs.front().gpus) sum.gpus[model] += count;
  }
  const bool beyond = std::ranges::any_of(sum.gpus, [&](const auto& gpu) {
    const auto place = mixed.gpus.find(gpu.first);
    return place == mixed.gpus.end() || place->second < gpu.second;
  });
  if (mixed.gpus.empty() || !beyond) return;
  problems.push_back({"the classes alone used other GPUs than the mix",
                      fmt::format("{} alone, {} in the mix", sum.gpus_text(), mixed.gpus_text()),
                      "Run each class alone on the devices that it has in the mix."});
}

/// The time of emulated devices is modelled, so their throughput is the one in modelled time.
double throughput_of(const RunDigest& run) {
  const auto rate = run.emulated ? run.modelled_samples_per_s : run.number("throughput");
  if (rate && *rate > 0) return *rate;
  throw Error(ErrorKind::not_comparable,
              {{run.run_id + " has no throughput",
                run.emulated ? "emulated devices need a prediction with their modelled time"
                             : "class " + run.severity,
                ""}});
}

/// The mean over the runs of one side, with the standard error of that mean.
SideThroughput summary_of(const RunSet& set) {
  std::vector<double> values;
  for (const RunDigest& run : set.runs) values.push_back(throughput_of(run));
  SideThroughput throughput;
  throughput.runs = values.size();
  throughput.throughput = mean(values);
  throughput.standard_error =
      standard_deviation(values) / std::sqrt(static_cast<double>(values.size()));
  const auto counts = set.runs.front().class_counts();
  throughput.device_class = counts.size() == 1 ? counts.begin()->first : counts_text(counts);
  for (const auto& [name, count] : counts) throughput.count += count;
  return throughput;
}

/// The interval of the HSR at 95 %; nothing unless every side has 2 runs, as a single run has no
/// spread. With X the mix and Y the classes, d ln HSR = dX / X - Σ dY / ΣY, so each class counts
/// relative to the sum of all.
std::optional<Interval> interval_of(const HeteroRatio& ratio) {
  double variance = 0, weighted = 0;
  const auto add = [&](const SideThroughput& throughput, double scale) {
    const double part = throughput.standard_error * throughput.standard_error / (scale * scale);
    variance += part;
    weighted += part * part / static_cast<double>(throughput.runs - 1);
  };
  const auto single = [](const SideThroughput& side) { return side.runs < 2; };
  if (single(ratio.mix) || std::ranges::any_of(ratio.baselines, single)) return std::nullopt;
  add(ratio.mix, ratio.mix.throughput);
  for (const SideThroughput& baseline : ratio.baselines) add(baseline, ratio.ideal_sum);
  if (variance == 0) return Interval{ratio.hsr, ratio.hsr};
  const LogRatio log{std::log(ratio.hsr), std::sqrt(variance), variance * variance / weighted};
  const Interval logs = log.interval(interval_coverage);
  return Interval{std::exp(logs.low), std::exp(logs.high)};
}

std::string headline(const HeteroRatio& ratio) {
  std::string text = fmt::format("HSR {:.4f}", ratio.hsr);
  if (ratio.hsr_ci95) {
    text += fmt::format(" (95 % CI {:.4f} to {:.4f}, run to run)", ratio.hsr_ci95->low,
                        ratio.hsr_ci95->high);
  }
  return text + fmt::format(", {:.3f} x {} alone", ratio.gain, ratio.best_class);
}

}  // namespace

HeteroRatio hetero_ratio(const RunSet& mix, const std::vector<RunSet>& alone) {
  std::vector<Problem> problems;
  for (const RunDigest& run : mix.runs) compare_fields(mix.runs.front(), run, problems);
  for (const RunSet& set : alone) {
    for (const RunDigest& run : set.runs) compare_fields(mix.runs.front(), run, problems);
  }
  check_classes(mix, alone, problems);
  check_gpus(mix, alone, problems);
  if (!problems.empty()) throw Error(ErrorKind::not_comparable, std::move(problems));
  HeteroRatio ratio;
  ratio.mix = summary_of(mix);
  ratio.unit = mix.runs.front().emulated ? "sample/s, modelled time" : mix.runs.front().unit;
  for (const RunSet& set : alone) {
    ratio.baselines.push_back(summary_of(set));
    ratio.ideal_sum += ratio.baselines.back().throughput;
  }
  const auto best = std::ranges::max_element(ratio.baselines, {}, &SideThroughput::throughput);
  ratio.best_class = best->device_class;
  ratio.gain = ratio.mix.throughput / best->throughput;
  ratio.hsr = *heterogeneous_speed_ratio(ratio.mix.throughput, ratio.ideal_sum);
  ratio.hsr_ci95 = interval_of(ratio);
  if (!ratio.hsr_ci95) ratio.notes.push_back("an interval needs at least 2 runs of every side");
  return ratio;
}

Document hetero_ratio_document(const HeteroRatio& ratio) {
  Document document{"heteroperf-hetero-ratio"};
  document.heading(headline(ratio));
  document.data("hsr", "heterogeneous speed ratio", Unit::ratio, ratio.hsr);
  document.data("gain", "gain over the best class", Unit::ratio, ratio.gain);
  document.data("best_class", "best class", Unit::none, ratio.best_class);
  document.data("ci95", "95 % interval of the ratio", Unit::ratio, ratio.hsr_ci95);
  const auto rate = [&](double value) { return Datum(value).as(with_prefix(value, ratio.unit)); };
  document.field("mix.throughput", "mix: " + ratio.mix.device_class, Unit::work_per_second,
                 rate(ratio.mix.throughput), plural(ratio.mix.runs, "run"));
  document.data("mix.runs", "runs of the mix", Unit::count, ratio.mix.runs);
  document.field("ideal_sum", "sum of the classes", Unit::work_per_second, rate(ratio.ideal_sum));
  document.data("unit", "unit of throughput", Unit::none, ratio.unit);
  Table classes{"baselines"};
  for (const SideThroughput& side : ratio.baselines) {
    classes.add_cells({{"class", "class alone", Unit::none, side.device_class},
                       {"count", "devices", Unit::count, side.count},
                       {"throughput", "throughput", Unit::work_per_second, rate(side.throughput)},
                       {"runs", "runs", Unit::count, side.runs}});
  }
  document.table(std::move(classes));
  add_notes(document, ratio.notes);
  return document;
}

}  // namespace heteroperf
