#include "results/scaling/sweep_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "metrics/log_ratio.hpp"
#include "metrics/statistics.hpp"

namespace heteroperf {
namespace {

constexpr double coverage = 0.95;
constexpr std::array scale_keys{"scale.ranks", "cluster.file"};

/// One repetition with a score.
struct ScoredRun {
  std::size_t repeat = 0;
  const RunDigest* digest = nullptr;
};
using ScoredPoint = std::pair<std::string, std::size_t>;  ///< workload, point
using ScoredRuns = std::map<ScoredPoint, std::vector<ScoredRun>>;

Interval exponential_of(const Interval& logs) { return {std::exp(logs.low), std::exp(logs.high)}; }

/// Of values that were measured independently.
RepeatedRate repeated(const std::vector<double>& values, const std::optional<Interval>& own) {
  std::vector<double> logs;
  for (const double value : values) logs.push_back(std::log(value));
  RepeatedRate rate{std::exp(mean(logs)), own};
  if (logs.size() >= 2) rate.ci95 = exponential_of(paired_log_ratio(logs).interval(coverage));
  return rate;
}

bool is_scale_key(const std::string& key) {
  return std::find(scale_keys.begin(), scale_keys.end(), key) != scale_keys.end();
}

/// What the point says apart from the axes that change the scale: equal for one curve.
std::string curve_of(const SweepIndex& index, const std::string& workload, std::size_t point) {
  std::string text = workload;
  std::size_t at = 0;
  for (const std::vector<std::string>& axis : index.axes) {
    const bool scale = std::any_of(axis.begin(), axis.end(), is_scale_key);
    for (std::size_t key = 0; key < axis.size(); ++key, ++at) {
      if (scale || at >= index.points[point].size()) continue;
      text += '\n' + index.points[point][at].second;
    }
  }
  return text;
}

std::string kind_of(const RunDigest& base, const RunDigest& run) {
  if (!base.samples_per_step || !run.samples_per_step) return "fixed time";
  const bool same_model = base.graph_hash == run.graph_hash;
  const auto samples = *run.samples_per_step, base_samples = *base.samples_per_step;
  if (same_model && samples == base_samples) return "strong";
  const bool per_device = samples * base.device_count() == base_samples * run.device_count();
  return per_device ? "weak" : "mixed";
}

/// OPS per device over the base's; run by run where both were repeated, for repetitions of one
/// round lie side by side in time.
RepeatedRate efficiency_of(const std::vector<ScoredRun>& base, const std::vector<ScoredRun>& runs) {
  const auto log_per_device = [](const RunDigest& run) {
    return std::log(*run.ops_per_second / static_cast<double>(run.device_count()));
  };
  std::vector<double> logs, differences, base_logs;
  for (const ScoredRun& run : runs) logs.push_back(log_per_device(*run.digest));
  for (const ScoredRun& one : base) {
    base_logs.push_back(log_per_device(*one.digest));
    for (const ScoredRun& run : runs) {
      if (run.repeat == one.repeat)
        differences.push_back(logs[&run - runs.data()] - base_logs.back());
    }
  }
  if (differences.size() < 2) return {std::exp(mean(logs) - mean(base_logs)), std::nullopt};
  const LogRatio ratio = paired_log_ratio(differences);
  return {std::exp(ratio.mean), exponential_of(ratio.interval(coverage))};
}

/// Gathers rows from records.
class Gathering {
 public:
  Gathering(const std::filesystem::path& folder, SweepReport& report)
      : folder_(folder), report_(report) {}

  void read(const SweepRun& run) {
    if (run.state != SweepRunState::complete) {
      report_.unscored.push_back({run.folder, to_string(run.state), run.reason});
      return;
    }
    const auto unscored = [&](const std::string& why) {
      report_.unscored.push_back({run.folder, "complete", why});
    };
    if (!std::filesystem::exists(folder_ / run.folder)) return unscored("its folder is gone");
    sets_.push_back(find_runs({folder_ / run.folder}));
    const RunSet& found = sets_.back();
    for (const SkippedEntry& one : found.skipped) unscored(one.reason);
    if (found.runs.empty() && found.skipped.empty()) unscored("it has no record any more");
    for (const RunDigest& digest : found.runs) {
      if (const auto why = why_unscored(digest)) {
        unscored(digest.workload + ": " + *why);
      } else {
        scored_[{digest.workload, run.point}].push_back({run.repeat, &digest});
      }
    }
  }

  void make_rows() {
    for (const auto& [key, runs] : scored_) report_.rows.push_back(row_of(key, runs));
    std::map<std::string, const SweepRow*> bases;
    for (const SweepRow& row : report_.rows) {
      const SweepRow*& base = bases[curve_of(report_.index, row.workload, row.point)];
      if (base == nullptr || row.devices < base->devices) base = &row;
    }
    for (SweepRow& row : report_.rows) {
      give_scaling(*bases.at(curve_of(report_.index, row.workload, row.point)), row);
    }
  }

 private:
  static std::optional<std::string> why_unscored(const RunDigest& digest) {
    if (const auto what = contradiction(digest)) return "not what was measured: " + *what;
    if (digest.severity == "invalid") {
      return fmt::format("invalid by the rules: {}", fmt::join(digest.reasons, "; "));
    }
    if (!digest.ops_per_second || !(*digest.ops_per_second > 0)) return "no score";
    return std::nullopt;
  }

  static SweepRow row_of(const ScoredPoint& key, const std::vector<ScoredRun>& runs) {
    SweepRow row;
    row.workload = key.first;
    row.point = key.second;
    row.runs = runs.size();
    std::vector<double> ops, throughputs, steps;
    for (const ScoredRun& run : runs) {
      ops.push_back(*run.digest->ops_per_second);
      for (const auto& [metric, values] :
           {std::pair("throughput", &throughputs), std::pair("step_time_s", &steps)}) {
        const auto& value = run.digest->metric(metric);
        if (value && value->number) values->push_back(*value->number);
      }
    }
    const RunDigest& last = *runs.back().digest;
    row.devices = last.device_count();
    row.unit = last.unit;
    row.ops_per_second = repeated(ops, last.ops_ci95);
    if (!throughputs.empty()) row.throughput = repeated(throughputs, last.throughput_ci95);
    if (!steps.empty()) row.step_time_s = mean(steps);
    row.validity = worst_class(runs);
    return row;
  }

  static std::string worst_class(const std::vector<ScoredRun>& runs) {
    for (const char* severity : {"open", "review"}) {
      for (const ScoredRun& run : runs) {
        if (run.digest->severity == severity) return severity;
      }
    }
    return "closed";
  }

  void give_scaling(const SweepRow& base, SweepRow& row) const {
    const std::string curve = curve_of(report_.index, row.workload, row.point);
    const auto differs = [&](const SweepRow& other) {
      return other.devices != base.devices &&
             curve_of(report_.index, other.workload, other.point) == curve;
    };
    if (std::none_of(report_.rows.begin(), report_.rows.end(), differs)) return;
    const auto& base_runs = scored_.at({base.workload, base.point});
    const auto& runs = scored_.at({row.workload, row.point});
    row.speedup = row.ops_per_second.value / base.ops_per_second.value;
    row.efficiency = &row == &base ? RepeatedRate{1, std::nullopt} : efficiency_of(base_runs, runs);
    row.scaling = &row == &base ? "base" : kind_of(*base_runs.back().digest, *runs.back().digest);
  }

  const std::filesystem::path& folder_;
  SweepReport& report_;
  std::vector<RunSet> sets_;  ///< their elements stay where they are when this grows
  ScoredRuns scored_;
};

}  // namespace

SweepReport report_sweep(const std::filesystem::path& folder) {
  SweepReport report{folder, read_sweep(folder), {}, {}};
  Gathering gathering(folder, report);
  for (const SweepRun& run : report.index.runs) gathering.read(run);
  gathering.make_rows();
  return report;
}

std::vector<PointFolders> complete_points(const std::filesystem::path& folder) {
  const SweepIndex index = read_sweep(folder);
  std::vector<PointFolders> points;
  for (std::size_t point = 0; point < index.points.size(); ++point) {
    PointFolders found{point_text(index.points[point]), {}};
    for (const SweepRun& run : index.runs) {
      const bool here = run.point == point && run.state == SweepRunState::complete;
      if (here) found.folders.push_back(folder / run.folder);
    }
    if (!found.folders.empty()) points.push_back(std::move(found));
  }
  return points;
}

}  // namespace heteroperf
