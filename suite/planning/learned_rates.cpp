// Corrects the rates of a described machine by what its ranks measured. A plan is predicted with
// the description, and each class's predicted computing time per step is divided by the one that
// its ranks measured. All rates of that class in the precision of the training are multiplied by
// this factor and marked as probed. One factor per class is all that a run can teach: it shows sums
// over operations, not single ones.
//
// Messages must not enter the comparison. The predicted side is computed on links without latency
// and of nearly infinite rate; the measured side counts computing time only. A factor beyond a
// hundred in either direction means that the times were measured elsewhere, and is refused.
#include "suite/planning/learned_rates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// Factors outside are no measurement of the same machine.
constexpr double least_factor = 0.01, most_factor = 100;

void check_factor(const DeviceTime& time, const std::string& source) {
  if (time.speed() >= least_factor && time.speed() <= most_factor) return;
  throw UserError(fmt::format("{} computes {:.3g} s of a step in {}", time.device_class,
                              time.measured_s, source),
                  fmt::format("{:.3g} s are predicted", time.predicted_s),
                  "Is --cluster the machine that it ran on?");
}

}  // namespace

std::vector<double> computing_s(const TrainingTask& task, const Plan& plan, const Cluster& used) {
  Cluster wide = used;
  for (Link& link : wide.links) link.curve = LinkCurve(Seconds(0), BytesPerSecond(1e30));
  const ReadyPlan unhindered(task, plan, std::move(wide));
  unhindered.predicted();
  return unhindered.busy_s();
}

LearnedRates learn_rates(const Cluster& used, Precision precision,
                         const std::vector<double>& predicted_s,
                         const std::vector<std::optional<double>>& measured_s,
                         const std::string& source) {
  std::map<std::string, DeviceTime> classes;
  for (std::size_t rank = 0; rank < std::min(predicted_s.size(), measured_s.size()); ++rank) {
    if (!measured_s[rank]) continue;
    const std::string& name = used.ranks[rank].device_class;
    DeviceTime& sum = classes[name];
    sum.device_class = name;
    ++sum.ranks;
    sum.predicted_s += predicted_s[rank];
    sum.measured_s += *measured_s[rank];
  }
  LearnedRates learned;
  const EfficiencyMatrix known = matrix_of(used);
  const Origin origin{Provenance::probe, "learned from " + source};
  for (auto& [name, time] : classes) {
    time.predicted_s /= time.ranks;
    time.measured_s /= time.ranks;
    check_factor(time, source);
    // Other precisions were not exercised by the training.
    learned.matrix.merge(scaled_rates(known, name, to_string(precision), time.speed(), origin));
    learned.classes.push_back(time);
  }
  return learned;
}

}  // namespace heteroperf
