// Planning for Sailor's inputs: reads them, searches by the cost model that is asked for, scores
// the plan by every measure, compares it with each place alone and with plans of Sailor's own, and
// notes what of the inputs no plan could use.
//
// Three measures stand side by side. `sailor` is the published formula, `sailor+` its extension to
// pipelines with unequal shares, and the simulation is ours over the same profiles. A plan is found
// by one of them and reported by all, because a plan that is good by the formula it was searched
// with may be less so by another measure. Notes say which profiles and links are missing, since a
// plan that would need them was left out without a trace otherwise.
//
// Published profiles have gaps: a device was measured with some sizes of micro-batches and degrees
// only. `--fill-profiles` makes stand-ins of what the same device was measured with; the report
// marks them as analytic. A device that was never measured gets none.
#include "runners/plan/rivals/sailor/sailor_planning.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <set>

#include "metrics/base/error.hpp"
#include "metrics/score.hpp"

namespace heteroperf {
namespace {

constexpr const char* cost_models[] = {"own", "sailor", "sailor+"};

/// Reads the folder, or the training configuration that the request names in it.
SailorInputs read_inputs(const SailorPlanningRequest& request) {
  SailorFiles files;
  const std::filesystem::path source = request.source;
  if (std::filesystem::is_regular_file(source)) {
    files.folder = source.parent_path();
    files.training = source.filename();
  } else {
    files.folder = source;
    if (!request.model.empty()) files.training = sailor_training_of(source, request.model);
  }
  SailorInputs inputs = read_sailor_inputs(files);
  if (request.batch) inputs.training.global_batch = *request.batch;
  return inputs;
}

/// A profile that one device lacks and another has, of the same model.
struct MissingProfile {
  std::string device;
  std::int64_t micro_batch = 1;
  int tensor = 1;
  friend auto operator<=>(const MissingProfile&, const MissingProfile&) = default;
};

/// Another degree is a worse model than another size by more than any ratio of sizes.
constexpr double weight_of_degree = 100;

/// Measures how unlike two profiles of one device are. Ratios count, not differences: 8 is as far
/// from 4 as from 16.
double distance(const std::pair<std::int64_t, int>& entry, const MissingProfile& to) {
  const auto ratio = [](double a, double b) { return std::abs(std::log(a / b)); };
  return ratio(static_cast<double>(entry.first), static_cast<double>(to.micro_batch)) +
         weight_of_degree * ratio(entry.second, to.tensor);
}

/// The profiles that some of the named devices have and others lack, in the degrees that a node has
/// room for and that the layers are described for; what no device has is not missed.
std::set<MissingProfile> missing_profiles(const SailorInputs& inputs,
                                          const std::set<std::string>& devices) {
  std::set<MissingProfile> missing;
  for (const auto& [profiled, profiles] : inputs.model.profiles) {
    if (!devices.contains(profiled)) continue;
    for (const auto& [key, timings] : profiles) {
      if (!inputs.model.layers.contains(key.second)) continue;
      for (const std::string& device : devices) missing.insert({device, key.first, key.second});
    }
  }
  std::erase_if(missing, [&](const MissingProfile& entry) {
    const auto profiles = inputs.model.profiles.find(entry.device);
    const auto given = inputs.devices.find(entry.device);
    return (given != inputs.devices.end() && entry.tensor > given->second.per_node) ||
           (profiles != inputs.model.profiles.end() &&
            profiles->second.contains({entry.micro_batch, entry.tensor}));
  });
  return missing;
}

/// Adds analytic stand-ins: the device's profile of the same degree and the nearest size, else its
/// profile of the nearest degree. Stand-ins are made of what was measured alone, never of other
/// stand-ins. Computing time follows the samples of a rank; updates follow its parameters, that is
/// the degree.
SailorInputs filled(SailorInputs inputs) {
  const auto measured = inputs.model.profiles;
  std::set<std::string> devices;
  for (const auto& [name, profiles] : measured) devices.insert(name);
  for (const MissingProfile& wanted : missing_profiles(inputs, devices)) {
    const auto& profiles = measured.at(wanted.device);
    if (profiles.empty()) continue;
    const auto nearest = std::ranges::min_element(
        profiles, {}, [&](const auto& profile) { return distance(profile.first, wanted); });
    const auto& [size, tensor] = nearest->first;
    const double factor = static_cast<double>(wanted.micro_batch) / static_cast<double>(size) *
                          tensor / wanted.tensor;
    std::vector<SailorTiming> timings = nearest->second;
    for (SailorTiming& timing : timings) {
      timing.forward_s *= factor;
      timing.backward_s *= factor;
      timing.update_s *= static_cast<double>(tensor) / wanted.tensor;
    }
    inputs.model.profiles[wanted.device][{wanted.micro_batch, wanted.tensor}] = std::move(timings);
  }
  return inputs;
}

/// Lists missing profiles by name, no more than twelve.
std::string listed(const std::set<MissingProfile>& missing) {
  constexpr std::size_t most = 12;
  std::vector<std::string> names;
  for (const auto& [device, micro_batch, tensor] : missing) {
    if (names.size() == most) break;
    names.push_back(fmt::format("{} tp{} micro-batch {}", device, tensor, micro_batch));
  }
  if (missing.size() > most) names.push_back(fmt::format("{} more", missing.size() - most));
  return fmt::format("{}", fmt::join(names, "; "));
}

/// One request: the inputs as given, as filled up, and prepared.
class SailorPlanner {
 public:
  explicit SailorPlanner(const SailorPlanningRequest& request)
      : request_(request),
        given_(read_inputs(request)),
        inputs_(request.fill_profiles ? filled(given_) : given_),
        tables_(inputs_) {}

  SailorPlanReport score(const std::function<SailorPlan(const SailorTables&)>& read) const {
    const SailorPlan plan = read(tables_);
    SailorPlanReport report(request_, tables_);
    check_sailor_plan(tables_, plan);
    const SailorDevices used = plan.devices(report.devices.size());
    for (std::size_t p = 0; p < used.size(); ++p) {
      if (used[p] <= report.devices[p]) continue;
      throw UserError(fmt::format("the plan uses {} devices {}", used[p], tables_.places()[p]),
                      fmt::format("the cluster has {}", report.devices[p]));
    }
    report.chosen = scored(plan);
    complete(report);
    return report;
  }

  SailorPlanReport run() const {
    SailorPlanReport report(request_, tables_);
    report.search = search(report.devices, report.chosen);
    complete(report);
    if (request_.compare) compare(report);
    for (const std::string& file : request_.peers) report.peers.push_back(peer(file));
    note_missing_profiles(report);
    note_one_way_links(report);
    return report;
  }

 private:
  /// A plan by both formulas and by simulation. A plan that cannot be simulated keeps its formula
  /// and the reason.
  ScoredPeer scored(const SailorPlan& plan) const {
    ScoredPeer result;
    result.plan = plan;
    result.formula_s = sailor_step_time_s(tables_, plan);
    result.fits = fits_sailor_memory(tables_, plan);
    try {
      result.simulated_s = simulated_sailor_step_s(inputs_, tables_, plan);
    } catch (const UserError& error) {
      result.why_not = error.problems().front().text();
    }
    return result;
  }

  /// Adds the parts of the chosen plan's time, and the lower bound.
  void complete(SailorPlanReport& report) const {
    report.chosen.name = "ours";
    report.parts = sailor_report(tables_, report.chosen.plan);
    report.lower_bound_s = sailor_work_bound_s(tables_, report.devices);
  }

  /// Searches by the cost model. `own` searches by both formulas and takes the plan that the
  /// simulation finds faster.
  SailorSearchResult search(const SailorDevices& devices, ScoredPeer& chosen) const {
    SailorSearchOptions options;
    options.time_limit_s = request_.time_limit_s;
    options.score = request_.cost_model == PlanCostModel::sailor ? SailorScore::published
                                                                 : SailorScore::extended;
    SailorSearchResult result = search_sailor(tables_, devices, options);
    chosen = scored(result.plan);
    if (request_.cost_model != PlanCostModel::own) return result;
    options.score = SailorScore::published;
    const SailorSearchResult second = search_sailor(tables_, devices, options);
    result.candidates += second.candidates;
    result.seconds += second.seconds;
    result.complete &= second.complete;
    const ScoredPeer equal = scored(second.plan);
    if (equal.simulated_s > 0 && equal.simulated_s < chosen.simulated_s) chosen = equal;
    return result;
  }

  /// Searches for every place alone, with all its devices, as the heterogeneous speed ratio needs
  /// it.
  void compare(SailorPlanReport& report) const {
    for (const int place : places_in_use(report.devices)) {
      SailorDevices devices(report.devices.size(), 0);
      const int count = devices[place] = report.devices[place];
      ScoredPeer& alone = report.alone.emplace_back();
      try {
        search(devices, alone);
      } catch (const UserError& error) {
        alone.why_not = error.problems().front().text();
      }
      alone.name = tables_.name(place);
      alone.devices = count;
    }
  }

  /// Reads and scores a plan file of Sailor's.
  ScoredPeer peer(const std::string& file) const {
    const SailorPlan plan = read_sailor_plan(file, tables_);
    for (const auto& stage : plan.stages) {
      if (stage.layers.end <= tables_.layers()) continue;
      throw UserError(fmt::format("{} has a stage up to layer {}", file, stage.layers.end - 1),
                      fmt::format("{} has {} layers", tables_.model(), tables_.layers()),
                      "Choose the model that it was made for with --model.");
    }
    ScoredPeer result = scored(plan);
    result.name = file;
    if (!result.fits) result.why_not = "does not fit the memory table";
    return result;
  }

  /// Notes profiles that devices in use lack: filled by stand-ins, or not used.
  void note_missing_profiles(SailorPlanReport& report) const {
    std::set<std::string> devices;
    for (const int place : places_in_use(report.devices)) devices.insert(tables_.device(place));
    const auto missing = missing_profiles(given_, devices);
    if (missing.empty()) return;
    report.notes.push_back(
        request_.fill_profiles
            ? fmt::format("analytic, scaled from the nearest profile: {}", listed(missing))
            : fmt::format("not profiled and not used: {} (--fill-profiles scales the nearest)",
                          listed(missing)));
  }

  /// Notes links between devices in use that exist in one direction only.
  void note_one_way_links(SailorPlanReport& report) const {
    const auto in_use = [&](const SailorLinkEnd& end) {
      const int place = tables_.find_place(end.device, end.zone);
      return place >= 0 && report.devices[place] > 0;
    };
    for (const auto& [ends, curve] : inputs_.network) {
      const auto& [from, to] = ends;
      if (inputs_.network.contains({to, from}) || !in_use(from) || !in_use(to)) continue;
      report.notes.push_back(
          fmt::format("no link from {} of {} to {} of {} (there is one the other way): plans that "
                      "need it are left out",
                      to.devices, to.device, from.devices, from.device));
    }
  }

  const SailorPlanningRequest& request_;
  SailorInputs given_;   ///< without stand-ins
  SailorInputs inputs_;  ///< the ones that are planned with
  SailorTables tables_;
};

}  // namespace

PlanCostModel parse_cost_model(const std::string& text) {
  const auto* known = std::ranges::find(cost_models, text);
  if (known != std::end(cost_models)) return static_cast<PlanCostModel>(known - cost_models);
  throw UserError(fmt::format("--cost-model {}", text),
                  fmt::format("one of {}", fmt::join(cost_models, ", ")));
}

const char* to_string(PlanCostModel model) { return cost_models[static_cast<int>(model)]; }

double SailorPlanReport::seconds(const ScoredPeer& scored) const {
  return request.cost_model == PlanCostModel::own ? scored.simulated_s : scored.formula_s;
}

std::optional<double> SailorPlanReport::hsr() const {
  double sum = 0;
  for (const ScoredPeer& place : alone) {
    if (!place.plan.stages.empty()) sum += 1 / seconds(place);
  }
  return heterogeneous_speed_ratio(1 / seconds(chosen), sum);
}

SailorPlanReport plan_sailor(const SailorPlanningRequest& request) {
  return SailorPlanner(request).run();
}

SailorPlanReport score_sailor(const SailorPlanningRequest& request,
                              const std::function<SailorPlan(const SailorTables&)>& read) {
  return SailorPlanner(request).score(read);
}

}  // namespace heteroperf
