// Fits the rates of device classes to a profile of Metis': every rate of a class is multiplied by
// predicted / profiled seconds of a pass over the whole model, so that the planner's own times add
// up to the measured ones. What remains between the two by batch size is the fit's error.
#include "runners/plan/rivals/metis/metis_rates.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <numeric>
#include <optional>

#include "metrics/base/error.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/times/stage_times.hpp"

namespace heteroperf {
namespace {

/// Models are the same where their parameters differ by less: vocabularies may be padded, biases
/// left out.
constexpr double same_parameters = 0.05;
constexpr double most_factor = 100;

/// One batch size of the profile, with the layers' times summed up.
struct Entry {
  std::int64_t batch = 1;
  double profiled_s = 0;
};

/// Refuses the profile of another model, by its parameters: of single or of half precision.
void check_parameters(const MetisProfiles& profiles, const ModelGraph& graph) {
  const auto whole = profiles.parameters.find(1);
  if (whole == profiles.parameters.end()) return;
  double bytes = 0;
  for (const Bytes& layer : whole->second) bytes += static_cast<double>(layer.value());
  const auto parameters = static_cast<double>(graph.parameter_count());
  for (const double width : {2.0, 4.0}) {
    if (std::abs(bytes / (parameters * width) - 1) <= same_parameters) return;
  }
  throw UserError(
      fmt::format("the profile of {} is of {:.4g} bytes of parameters",
                  profiles.model.empty() ? "a model without a name" : profiles.model, bytes),
      fmt::format("the workload has {:.4g} parameters of 2 or 4 bytes", parameters),
      "Plan for the profiled model: --model, --size and the workload's keys choose it.");
}

/// Entries of degree 1; those of larger degrees hold their ranks' sums.
std::vector<Entry> entries_of(const MetisProfiles& profiles, const std::string& device_class) {
  std::vector<Entry> entries;
  const auto profiled = profiles.classes.find(device_class);
  if (profiled == profiles.classes.end()) return entries;
  for (const auto& [key, profile] : profiled->second) {
    if (key.first != 1) continue;
    const double seconds = std::accumulate(profile.compute_s.begin(), profile.compute_s.end(), 0.0);
    if (seconds > 0) entries.push_back({key.second, seconds});
  }
  return entries;
}

/// Any rank of the class, for all of them are alike.
std::optional<RankId> any_of_class(const Cluster& cluster, const std::string& name) {
  for (std::size_t r = 0; r < cluster.ranks.size(); ++r) {
    if (cluster.ranks[r].device_class == name) return RankId(static_cast<std::int32_t>(r));
  }
  return std::nullopt;
}

/// Predicts the seconds of forward and backward of `batch` samples on one device.
double pass_s(const ModelGraph& graph, const Cluster& device, Precision precision,
              std::int64_t batch) {
  EvenPlanRequest request;
  request.micro_batch = batch;
  const Plan plan = even_plan(graph, request);
  const StageTimes times = stage_times(graph, cut_graph(graph, plan), plan, device, precision);
  const StageTimes::Compute& pass = times.compute.front().front();
  return pass.forward_s + pass.input_gradient_s + pass.weight_gradient_s;
}

}  // namespace

// Every class of the cluster that the profile has is fitted by itself: one factor for all of its
// rates, from the sum over the batch sizes.
ProfiledRates metis_rates(const MetisProfiles& profiles, const ModelGraph& graph,
                          const Cluster& cluster, Precision precision) {
  check_parameters(profiles, graph);
  ProfiledRates result;
  const EfficiencyMatrix known = matrix_of(cluster);
  const std::string source = "Metis' profile of " + profiles.model;
  std::vector<std::string> here;
  for (const DeviceClass& device_class : cluster.classes) {
    here.push_back(device_class.name);
    const std::vector<Entry> entries = entries_of(profiles, device_class.name);
    const std::optional<RankId> rank = any_of_class(cluster, device_class.name);
    if (entries.empty() || !rank) continue;
    const Cluster device = part_of_cluster(cluster, {*rank});
    ProfiledRates::ClassFit& fit = result.classes.emplace_back();
    fit.device_class = device_class.name;
    fit.entries = static_cast<int>(entries.size());
    std::vector<double> predicted_s;
    for (const Entry& entry : entries) {
      predicted_s.push_back(pass_s(graph, device, precision, entry.batch));
      fit.predicted_s += predicted_s.back();
      fit.profiled_s += entry.profiled_s;
    }
    // Above 1 the device is faster than its description says.
    const double factor = fit.predicted_s / fit.profiled_s;
    if (!(factor >= 1 / most_factor && factor <= most_factor)) {
      throw UserError(
          fmt::format("{} takes {:.3g} s in the profile", device_class.name, fit.profiled_s),
          fmt::format("{:.3g} s are predicted from its rates", fit.predicted_s),
          "Is it the same device, precision and sequence length?");
    }
    for (std::size_t e = 0; e < entries.size(); ++e) {
      fit.error += std::abs(predicted_s[e] / factor / entries[e].profiled_s - 1) /
                   static_cast<double>(entries.size());
    }
    for (const auto& [key, rate] : known.rates()) {
      if (key.device_class != device_class.name || key.precision != to_string(precision)) continue;
      result.matrix.add(key,
                        {OpsPerSecond(rate.rate.value() * factor), {Provenance::file, source}});
    }
  }
  if (result.classes.empty()) {
    std::vector<std::string> there;
    for (const auto& [name, entries] : profiles.classes) there.push_back(name);
    throw UserError(
        fmt::format("the profile has nothing of this cluster: it is of {}", fmt::join(there, ", ")),
        fmt::format("the cluster has {}", fmt::join(here, ", ")),
        "Name the classes alike; entries of degree 1 are needed.");
  }
  return result;
}

}  // namespace heteroperf
