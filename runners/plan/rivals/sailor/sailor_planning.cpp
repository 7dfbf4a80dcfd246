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
#include <ranges>
#include <set>

#include "metrics/base/error.hpp"
#include "metrics/score.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

constexpr const char* cost_models[] = {"own", "sailor", "sailor+"};

/// Reads the folder, or the training configuration that the request names in it.
SailorInputs read_inputs(const SailorPlanningRequest& request) {
  SailorFiles files{.folder = request.source, .model = request.model};
  if (std::filesystem::is_regular_file(files.folder)) {
    files.training = files.folder.filename();
    files.folder = files.folder.parent_path();
  }
  SailorInputs inputs = read_sailor_inputs(files);
  if (request.batch) inputs.training.global_batch = *request.batch;
  return inputs;
}

/// A device, and a (micro-batch, degree) that it has no profile of and another device has.
using MissingProfile = std::pair<std::string, std::pair<std::int64_t, int>>;

/// Another degree is a worse model than another size by more than any ratio of sizes.
constexpr double weight_of_degree = 100;

/// Measures how unlike two profiles of one device are. Ratios count, not differences: 8 is as far
/// from 4 as from 16.
double distance(const std::pair<std::int64_t, int>& from, const std::pair<std::int64_t, int>& to) {
  const auto ratio = [](double a, double b) { return std::abs(std::log(a / b)); };
  return ratio(static_cast<double>(from.first), static_cast<double>(to.first)) +
         weight_of_degree * ratio(from.second, to.second);
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
      for (const std::string& device : devices) missing.emplace(device, key);
    }
  }
  std::erase_if(missing, [&](const MissingProfile& entry) {
    const auto& [device, key] = entry;
    const auto profiles = inputs.model.profiles.find(device);
    const auto given = inputs.devices.find(device);
    return (given != inputs.devices.end() && key.second > given->second.per_node) ||
           (profiles != inputs.model.profiles.end() && profiles->second.contains(key));
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
  for (const auto& [device, wanted] : missing_profiles(inputs, devices)) {
    const auto& profiles = measured.at(device);
    if (profiles.empty()) continue;
    const auto nearest = std::ranges::min_element(
        profiles, {}, [&](const auto& profile) { return distance(profile.first, wanted); });
    const auto& [size, tensor] = nearest->first;
    const double factor =
        static_cast<double>(wanted.first) / static_cast<double>(size) * tensor / wanted.second;
    std::vector<SailorTiming>& timings = inputs.model.profiles[device][wanted] = nearest->second;
    for (SailorTiming& timing : timings) {
      timing.forward_s *= factor;
      timing.backward_s *= factor;
      timing.update_s *= static_cast<double>(tensor) / wanted.second;
    }
  }
  return inputs;
}

/// Notes profiles that devices in use lack, no more than twelve by name: filled by stand-ins, or
/// not used.
void note_missing_profiles(const SailorInputs& given, SailorPlanReport& report) {
  constexpr std::size_t most = 12;
  std::set<std::string> devices;
  for (const int place : places_in_use(report.devices)) devices.insert(report.tables.device(place));
  const auto missing = missing_profiles(given, devices);
  if (missing.empty()) return;
  const auto named = std::views::take(missing, most);
  std::string list = joined(named, "; ", [](const MissingProfile& profile) {
    const auto& [micro_batch, tensor] = profile.second;
    return fmt::format("{} tp{} micro-batch {}", profile.first, tensor, micro_batch);
  });
  if (missing.size() > most) list += fmt::format("; {} more", missing.size() - most);
  report.notes.push_back(
      report.request.fill_profiles
          ? "analytic, scaled from the nearest profile: " + list
          : fmt::format("not profiled and not used: {} (--fill-profiles scales the nearest)",
                        list));
}

/// Notes links between devices in use that exist in one direction only.
void note_one_way_links(SailorPlanReport& report) {
  const auto& network = report.tables.inputs().network;
  const auto in_use = [&](const SailorLinkEnd& end) {
    const int place = report.tables.find_place(end.device, end.zone);
    return place >= 0 && report.devices[place] > 0;
  };
  for (const auto& [ends, curve] : network) {
    const auto& [from, to] = ends;
    if (network.contains({to, from}) || !in_use(from) || !in_use(to)) continue;
    report.notes.push_back(
        fmt::format("no link from {} of {} to {} of {} (there is one the other way): plans that "
                    "need it are left out",
                    to.devices, to.device, from.devices, from.device));
  }
}

/// The report of a request whose plan is still to be found: all that no plan could use is noted.
SailorPlanReport begun(const SailorPlanningRequest& request) {
  const SailorInputs given = read_inputs(request);
  SailorPlanReport report{request, SailorTables(request.fill_profiles ? filled(given) : given)};
  report.devices = sailor_devices(report.tables, request.cluster);
  note_missing_profiles(given, report);
  note_one_way_links(report);
  return report;
}

/// A plan by both formulas and by simulation. A plan that cannot be simulated keeps its formula and
/// the reason.
ScoredPeer scored(const SailorTables& tables, const SailorPlan& plan, const std::string& name) {
  ScoredPeer result{name, plan, sailor_step_time_s(tables, plan)};
  result.fits = fits_sailor_memory(tables, plan);
  try {
    result.simulated_s = simulated_sailor_step_s(tables, plan);
  } catch (const UserError& error) {
    result.why_not = error.problems().front().text();
  }
  return result;
}

/// Adds the parts of the chosen plan's time, and the lower bound.
void complete(SailorPlanReport& report) {
  report.parts = sailor_report(report.tables, report.chosen.plan);
  report.lower_bound_s = sailor_work_bound_s(report.tables, report.devices);
}

/// Searches by the cost model; the searches' efforts are added to `effort`. `own` searches by both
/// formulas and takes the plan that the simulation finds faster.
ScoredPeer search(const SailorPlanReport& report, const SailorDevices& devices,
                  const std::string& name, SailorSearchResult& effort) {
  ScoredPeer chosen;
  for (const SailorScore score : {SailorScore::extended, SailorScore::published}) {
    const auto left_out =
        score == SailorScore::extended ? PlanCostModel::sailor : PlanCostModel::sailor_plus;
    if (report.request.cost_model == left_out) continue;
    const SailorSearchResult result =
        search_sailor(report.tables, devices, score, report.request.time_limit_s);
    effort.candidates += result.candidates;
    effort.seconds += result.seconds;
    effort.complete &= result.complete;
    ScoredPeer peer = scored(report.tables, result.plan, name);
    const bool faster = peer.simulated_s > 0 && peer.simulated_s < chosen.simulated_s;
    if (chosen.plan.stages.empty() || faster) chosen = std::move(peer);
  }
  return chosen;
}

/// Searches for every place alone, with all its devices, as the heterogeneous speed ratio needs it.
void compare(SailorPlanReport& report) {
  for (const int place : places_in_use(report.devices)) {
    SailorDevices devices(report.devices.size(), 0);
    devices[place] = report.devices[place];
    ScoredPeer& alone = report.alone.emplace_back();
    alone.name = report.tables.name(place);
    SailorSearchResult ignored;
    try {
      alone = search(report, devices, alone.name, ignored);
    } catch (const UserError& error) {
      alone.why_not = error.problems().front().text();
    }
    alone.devices = devices[place];
  }
}

/// Reads and scores a plan file of Sailor's.
ScoredPeer peer_of(const SailorTables& tables, const std::string& file) {
  const SailorPlan plan = read_sailor_plan(file, tables);
  for (const SailorStage& stage : plan.stages) {
    if (stage.layers.end <= tables.layers()) continue;
    throw UserError(fmt::format("{} has a stage up to layer {}", file, stage.layers.end - 1),
                    fmt::format("{} has {} layers", tables.model(), tables.layers()),
                    "Choose the model that it was made for with --model.");
  }
  ScoredPeer result = scored(tables, plan, file);
  if (!result.fits) result.why_not = "does not fit the memory table";
  return result;
}

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
  SailorPlanReport report = begun(request);
  report.chosen = search(report, report.devices, "ours", report.search);
  complete(report);
  if (request.compare) compare(report);
  for (const std::string& file : request.peers) {
    report.peers.push_back(peer_of(report.tables, file));
  }
  return report;
}

SailorPlanReport score_sailor(const SailorPlanningRequest& request,
                              const std::function<SailorPlan(const SailorTables&)>& read) {
  SailorPlanReport report = begun(request);
  const SailorPlan plan = read(report.tables);
  check_sailor_plan(report.tables, plan);
  const SailorDevices used = plan.devices(report.devices.size());
  for (std::size_t p = 0; p < used.size(); ++p) {
    if (used[p] <= report.devices[p]) continue;
    throw UserError(fmt::format("the plan uses {} devices {}", used[p], report.tables.places()[p]),
                    fmt::format("the cluster has {}", report.devices[p]));
  }
  report.chosen = scored(report.tables, plan, "ours");
  complete(report);
  return report;
}

}  // namespace heteroperf
