// Makes the table of a sweep out of its index and the records of its runs: a row per workload and
// point with means over the repetitions, and beside it the runs without a score and why. Rows that
// differ in nothing but their scale and lie on one kind of machine form a curve, on which each row
// gets a speed-up and an efficiency against the row with the fewest devices. The *scale* is what
// the axes of ranks or of the cluster change; all other axes of the sweep tell curves apart.

#include "results/scaling/sweep_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "metrics/statistics.hpp"
#include "results/comparison/record_doubt.hpp"
#include "results/comparison/run_digest.hpp"

namespace heteroperf {
namespace {

/// Axes with one of these keys change the number of devices.
constexpr std::array scale_keys{"scale.ranks", "cluster.file"};

using ScoredPoint = std::pair<std::string, std::size_t>;  ///< workload, point
using ScoredRuns = std::map<ScoredPoint, Repetitions>;

bool is_scale_key(const std::string& key) {
  return std::ranges::find(scale_keys, key) != scale_keys.end();
}

/// The point's values apart from the axes that change the scale: equal for one curve.
std::string curve_of(const SweepIndex& index, const std::string& workload, std::size_t point) {
  std::string text = workload;
  std::size_t at = 0;
  for (const std::vector<std::string>& axis : index.axes) {
    const bool scale = std::ranges::any_of(axis, is_scale_key);
    for (std::size_t key = 0; key < axis.size(); ++key, ++at) {
      if (scale || at >= index.points[point].size()) continue;
      text += '\n' + index.points[point][at].second;
    }
  }
  return text;
}

/// The kind of scaling from `base` to `run`: by what stays the same, the work of a step or the work
/// of a device in a step. A search has no fixed step, so it has a fixed time.
std::string kind_of(const RunDigest& base, const RunDigest& run) {
  if (!base.samples_per_step || !run.samples_per_step) return "fixed time";
  const bool same_model = base.graph_hash == run.graph_hash;
  const auto samples = *run.samples_per_step, base_samples = *base.samples_per_step;
  if (same_model && samples == base_samples) return "strong";
  const bool per_device = samples * base.device_count() == base_samples * run.device_count();
  return per_device ? "weak" : "mixed";
}

double ops_of(const RunDigest& run) { return *run.number("ops_per_second"); }

/// Gathers the rows of a report: read() for each run of the index, then make_rows() once.
class Gathering {
 public:
  Gathering(const std::filesystem::path& folder, SweepReport& report)
      : folder_(folder), report_(report) {}

  /// Keeps the scored runs of a folder; all others are reported with the reason.
  void read(const SweepRun& run) {
    if (run.state != SweepRunState::complete) {
      report_.unscored.push_back({run.folder, to_string(run.state), run.reason});
      return;
    }
    const auto unscored = [&](const std::string& why) {
      report_.unscored.push_back({run.folder, "complete", why});
    };
    if (!std::filesystem::exists(folder_ / run.folder)) return unscored("its folder is gone");
    ++report_.complete;
    // Rows point at digests, so the sets are kept as long as this object.
    sets_.push_back(find_runs({folder_ / run.folder}));
    RunSet& set = sets_.back();
    for (const SkippedEntry& entry : set.skipped) unscored(entry.reason);
    if (set.runs.empty() && set.skipped.empty()) unscored("it has no record any more");
    for (RunDigest& digest : set.runs) {
      if (const auto why = why_unscored(digest)) {
        unscored(digest.workload + ": " + *why);
      } else {
        scored_[{digest.workload, run.point}].push_back(&digest);
      }
    }
  }

  /// Rows first, as scaling holds them against each other.
  void make_rows() {
    for (const auto& [key, runs] : scored_) report_.rows.push_back(row_of(key, runs));
    std::map<std::string, std::vector<SweepRow*>> alike;
    for (SweepRow& row : report_.rows) {
      const RunDigest& last = *scored_.at({row.workload, row.point}).back();
      alike[curve_of(report_.index, row.workload, row.point) + '\n' + scaled_machines(last)]
          .push_back(&row);
    }
    for (const auto& [key, rows] : alike) {
      std::vector<ScaleMember> members;
      for (const SweepRow* row : rows) members.push_back({row->devices, row->threads});
      for (const ScaleCurve& curve : scale_curves(members)) give_scaling(rows, curve);
    }
  }

 private:
  /// A digest is replaced by what its journal gives, so its numbers can be relied on after this.
  static std::optional<std::string> why_unscored(RunDigest& digest) {
    if (const auto doubt = hold_to_journal(digest)) return doubt->text();
    if (digest.severity == "invalid") {
      return fmt::format("invalid by the rules: {}", fmt::join(digest.reasons, "; "));
    }
    if (!(digest.number("ops_per_second").value_or(0) > 0)) return "no score";
    return std::nullopt;
  }

  /// Threads, devices and units are the same for all repetitions, so the last one tells them.
  static SweepRow row_of(const ScoredPoint& key, const Repetitions& runs) {
    SweepRow row;
    row.workload = key.first;
    row.point = key.second;
    row.runs = runs.size();
    const auto numbers_of = [&](const char* metric) {
      std::vector<double> numbers;
      for (const RunDigest* run : runs) {
        if (const auto number = run->number(metric)) numbers.push_back(*number);
      }
      return numbers;
    };
    const auto throughputs = numbers_of("throughput"), steps = numbers_of("step_time_s");
    const RunDigest& last = *runs.back();
    row.devices = last.device_count();
    row.threads = threads_text(last);
    row.crowding = crowding_text(last);
    row.unit = last.unit;
    row.ops_per_second = repeated_rate(numbers_of("ops_per_second"), last.ci95("ops_per_second"));
    if (!throughputs.empty()) row.throughput = repeated_rate(throughputs, last.ci95("throughput"));
    if (!steps.empty()) row.step_time_s = mean(steps);
    row.validity = worst_class(runs);
    return row;
  }

  /// Invalid runs have been left out before, so "open" is the worst that is left.
  static std::string worst_class(const Repetitions& runs) {
    for (const char* severity : {"open", "review"}) {
      if (std::ranges::find(runs, severity, &RunDigest::severity) != runs.end()) return severity;
    }
    return "closed";
  }

  /// The base itself has a speed-up and an efficiency of 1 without an interval.
  void give_scaling(const std::vector<SweepRow*>& rows, const ScaleCurve& curve) const {
    const SweepRow& base = *rows[curve.members.front()];
    const Repetitions& base_runs = scored_.at({base.workload, base.point});
    for (const std::size_t member : curve.members) {
      SweepRow& row = *rows[member];
      const Repetitions& runs = scored_.at({row.workload, row.point});
      row.speedup = row.ops_per_second.value / base.ops_per_second.value;
      row.scaling = &row == &base   ? "base"
                    : curve.divided ? "divided"
                                    : kind_of(*base_runs.back(), *runs.back());
      if (curve.divided) continue;
      row.efficiency = &row == &base ? RepeatedRate{1, std::nullopt}
                                     : efficiency_against(base_runs, runs, ops_of);
    }
  }

  const std::filesystem::path& folder_;
  SweepReport& report_;
  std::vector<RunSet> sets_;  ///< their elements stay where they are when this grows
  ScoredRuns scored_;
};

}  // namespace

SweepReport report_sweep(const std::filesystem::path& folder) {
  SweepReport report{folder, read_sweep(folder), {}, {}, 0};
  Gathering gathering(folder, report);
  for (const SweepRun& run : report.index.runs) gathering.read(run);
  gathering.make_rows();
  return report;
}

std::vector<PointFolders> complete_points(const std::filesystem::path& folder) {
  const SweepIndex index = read_sweep(folder);
  std::vector<PointFolders> points;
  for (std::size_t point = 0; point < index.points.size(); ++point) {
    PointFolders at_point{point_text(index.points[point]), {}};
    for (const SweepRun& run : index.runs) {
      const bool here = run.point == point && run.state == SweepRunState::complete;
      if (here) at_point.folders.push_back(folder / run.folder);
    }
    if (!at_point.folders.empty()) points.push_back(std::move(at_point));
  }
  return points;
}

}  // namespace heteroperf
