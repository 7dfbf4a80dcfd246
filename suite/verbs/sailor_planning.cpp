#include "suite/verbs/sailor_planning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "metrics/base/error.hpp"
#include "runners/plan/sailor/sailor_fallback.hpp"
#include "runners/plan/sailor/sailor_inputs_json.hpp"
#include "runners/plan/sailor/sailor_plan_json.hpp"
#include "runners/plan/sailor/search/sailor_bound.hpp"
#include "suite/verbs/sailor_devices.hpp"

namespace heteroperf {
namespace {

constexpr const char* cost_models[] = {"own", "sailor", "sailor+"};

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
  if (request.fill_profiles) {
    std::vector<std::string> devices;
    for (const auto& [name, profiles] : inputs.model.profiles) devices.push_back(name);
    fill_profiles(missing_profiles(inputs, devices), inputs);
  }
  return inputs;
}

/// As `names`, of which no more than some.
std::string listed(const std::vector<MissingProfile>& missing) {
  constexpr std::size_t most = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, missing.size()); ++i) {
    text += (i == 0 ? "" : "; ") + to_string(missing[i]);
  }
  return missing.size() > most ? text + fmt::format("; {} more", missing.size() - most) : text;
}

class SailorPlanner {
 public:
  explicit SailorPlanner(const SailorPlanningRequest& request)
      : request_(request), inputs_(read_inputs(request)), tables_(inputs_) {}

  SailorPlanReport score(const SailorPlan& plan) const {
    SailorPlanReport report{
        request_, tables_, sailor_devices(tables_, request_.cluster), {}, {}, {}, 0, {}, {},
        {},       {}};
    check_sailor_plan(tables_, plan);
    SailorDevices left = report.devices;
    for (const SailorStage& stage : plan.stages) {
      for (const SailorReplicas& group : stage.replicas) {
        left[static_cast<std::size_t>(group.place)] -= group.count * group.tensor;
      }
    }
    for (std::size_t p = 0; p < left.size(); ++p) {
      if (left[p] >= 0) continue;
      throw UserError(fmt::format("the plan uses {} devices {}", report.devices[p] - left[p],
                                  tables_.places()[p]),
                      fmt::format("the cluster has {}", report.devices[p]));
    }
    report.chosen = scored("ours", plan);
    report.parts = sailor_report(tables_, plan);
    report.lower_bound_s = sailor_work_bound_s(tables_, report.devices);
    return report;
  }

  SailorPlanReport run() {
    SailorPlanReport report{
        request_, tables_, sailor_devices(tables_, request_.cluster), {}, {}, {}, 0, {}, {},
        {},       {}};
    report.search = best(report.devices, report.chosen);
    report.chosen.name = "ours";
    report.parts = sailor_report(tables_, report.chosen.plan);
    report.lower_bound_s = sailor_work_bound_s(tables_, report.devices);
    if (request_.compare) compare(report);
    for (const std::string& file : request_.peers) report.peers.push_back(peer(file));
    note_missing_profiles(report);
    note_one_way_links(report);
    return report;
  }

 private:
  double seconds(const ScoredPeer& one) const {
    return request_.cost_model == PlanCostModel::own ? one.simulated_s : one.formula_s;
  }

  ScoredPeer scored(std::string name, const SailorPlan& plan) const {
    ScoredPeer one{std::move(name),
                   plan,
                   sailor_step_time_s(tables_, plan),
                   0,
                   fits_sailor_memory(tables_, plan),
                   {}};
    try {
      one.simulated_s = simulate_sailor_plan(inputs_, tables_, plan).step_time_s;
    } catch (const UserError& error) {
      one.why_not = error.problems().front().text();
    }
    return one;
  }

  /// `own` takes of both searches' plans the one that the simulation finds faster.
  SailorSearchResult best(const SailorDevices& devices, ScoredPeer& chosen) const {
    SailorSearchOptions options;
    options.time_limit_s = request_.time_limit_s;
    options.score = request_.cost_model == PlanCostModel::sailor ? SailorScore::published
                                                                 : SailorScore::extended;
    SailorSearchResult found = search_sailor(tables_, devices, options);
    chosen = scored("", found.plan);
    if (request_.cost_model != PlanCostModel::own) return found;
    options.score = SailorScore::published;
    SailorSearchResult other = search_sailor(tables_, devices, options);
    other.candidates += found.candidates;
    other.seconds += found.seconds;
    other.complete &= found.complete;
    const ScoredPeer equal = scored("", other.plan);
    if (equal.simulated_s > 0 && equal.simulated_s < chosen.simulated_s) {
      chosen = equal;
      return other;
    }
    std::swap(other.plan, found.plan);
    return other;
  }

  void compare(SailorPlanReport& report) const {
    for (std::size_t p = 0; p < report.devices.size(); ++p) {
      if (report.devices[p] == 0) continue;
      SailorDevices alone(report.devices.size(), 0);
      alone[p] = report.devices[p];
      ScoredPeer one;
      try {
        best(alone, one);
      } catch (const UserError& error) {
        one.why_not = error.problems().front().text();
      }
      one.name = tables_.places()[p];
      report.alone.push_back(std::move(one));
      report.alone_devices.push_back(report.devices[p]);
    }
  }

  void note_missing_profiles(SailorPlanReport& report) const {
    SailorPlanningRequest as_given = request_;
    as_given.fill_profiles = false;
    std::vector<std::string> devices;
    for (std::size_t p = 0; p < report.devices.size(); ++p) {
      if (report.devices[p] > 0) devices.push_back(tables_.device(static_cast<int>(p)));
    }
    const auto missing = missing_profiles(read_inputs(as_given), devices);
    if (missing.empty()) return;
    report.notes.push_back(
        request_.fill_profiles
            ? fmt::format("analytic, scaled from the nearest profile: {}", listed(missing))
            : fmt::format("not profiled and not used: {} (--fill-profiles scales the nearest)",
                          listed(missing)));
  }

  /// Whether the cluster has devices at that end.
  bool is_here(const SailorLinkEnd& end, const SailorDevices& devices) const {
    const std::string name =
        end.zone == inputs_.zone ? end.device : fmt::format("{}@{}", end.device, end.zone);
    const auto& places = tables_.places();
    const auto found = std::find(places.begin(), places.end(), name);
    return found != places.end() && devices[static_cast<std::size_t>(found - places.begin())] > 0;
  }

  void note_one_way_links(SailorPlanReport& report) const {
    for (const auto& [ends, curve] : inputs_.network) {
      const auto& [from, to] = ends;
      if (inputs_.network.contains({to, from})) continue;
      if (!is_here(from, report.devices) || !is_here(to, report.devices)) continue;
      report.notes.push_back(
          fmt::format("no link from {} of {} to {} of {} (there is one the other way): plans that "
                      "need it are left out",
                      to.devices, to.device, from.devices, from.device));
    }
  }

  ScoredPeer peer(const std::string& file) const {
    const SailorPlan plan = read_sailor_run(file, tables_).plan;
    ScoredPeer one = scored(file, plan);
    if (!one.fits) one.why_not = "does not fit the memory table";
    return one;
  }

  const SailorPlanningRequest& request_;
  SailorInputs inputs_;
  SailorTables tables_;
};

std::string summary_of(const SailorPlanReport& report, const ScoredPeer& one) {
  return to_string(one.plan, report.tables.places());
}

std::string peer_row(const SailorPlanReport& report, const ScoredPeer& one) {
  std::string text = fmt::format("{:<16}", one.name);
  if (one.plan.stages.empty()) return text + fmt::format("no plan ({})\n", one.why_not);
  text += fmt::format("{:.4f} s by formula", one.formula_s);
  if (one.simulated_s > 0) text += fmt::format(", {:.4f} s simulated", one.simulated_s);
  if (!one.fits) text += ", does not fit";
  return text + fmt::format("  {}\n", summary_of(report, one));
}

/// "compute", "communication" or "sums over replicas", whatever takes most of the step.
std::string limited_by(const SailorPlanReport& report) {
  const SailorReport& parts = report.parts;
  if (parts.reduction_s > 0.5 * parts.step_time_s) return "sums over replicas";
  const auto slowest =
      std::max_element(parts.stages.begin(), parts.stages.end(),
                       [](const SailorReport::Stage& a, const SailorReport::Stage& b) {
                         return a.compute_s + a.communication_s < b.compute_s + b.communication_s;
                       });
  return fmt::format("{} of stage {}",
                     slowest->communication_s > slowest->compute_s ? "messages" : "compute",
                     slowest - parts.stages.begin());
}

}  // namespace

PlanCostModel parse_cost_model(const std::string& text) {
  const auto* found = std::find(std::begin(cost_models), std::end(cost_models), text);
  if (found != std::end(cost_models)) return static_cast<PlanCostModel>(found - cost_models);
  throw UserError(fmt::format("--cost-model {}", text),
                  fmt::format("one of {}", fmt::join(cost_models, ", ")));
}

const char* to_string(PlanCostModel model) { return cost_models[static_cast<std::size_t>(model)]; }

double SailorPlanReport::seconds(const ScoredPeer& one) const {
  return request.cost_model == PlanCostModel::own ? one.simulated_s : one.formula_s;
}

std::optional<double> SailorPlanReport::hsr() const {
  double sum = 0;
  for (const ScoredPeer& one : alone) {
    if (!one.plan.stages.empty()) sum += 1 / seconds(one);
  }
  if (sum == 0) return std::nullopt;
  return 1 / seconds(chosen) / sum;
}

SailorPlanReport plan_sailor(const SailorPlanningRequest& request) {
  return SailorPlanner(request).run();
}

SailorTables sailor_tables_of(const SailorPlanningRequest& request) {
  return SailorTables(read_inputs(request));
}

SailorPlanReport score_sailor(const SailorPlanningRequest& request, const SailorPlan& plan) {
  return SailorPlanner(request).score(plan);
}

std::string sailor_plan_table(const SailorPlanReport& report) {
  const double step_s = report.seconds(report.chosen);
  std::string text =
      fmt::format("{} of {} samples, by {}\n", report.tables.model(), report.tables.global_batch(),
                  to_string(report.request.cost_model));
  text += "stage  layers   compute s   messages s  sum s     fullest device      replicas\n";
  for (std::size_t s = 0; s < report.parts.stages.size(); ++s) {
    const SailorReport::Stage& stage = report.parts.stages[s];
    SailorPlan one;
    one.stages = {report.chosen.plan.stages[s]};
    const std::string all = to_string(one, report.tables.places());
    const std::size_t begin = all.find(' ') + 1;
    text += fmt::format(
        "{:>5}  {:>2}-{:<4}  {:<10.4g}  {:<10.4g}  {:<8.4g}  {:.2f} of {:.2f} GiB   {}\n", s,
        one.stages[0].begin, one.stages[0].end - 1, stage.compute_s, stage.communication_s,
        stage.reduction_s, stage.memory_bytes / (1 << 30), stage.memory_limit_bytes / (1 << 30),
        all.substr(begin, all.find(';') - begin));
  }
  const std::string all = summary_of(report, report.chosen);
  text += fmt::format("shares          {}\n", all.substr(all.rfind(';') + 2));
  text += fmt::format("step time       {:.6g} s  throughput {:.6g} samples/s\n", step_s,
                      static_cast<double>(report.tables.global_batch()) / step_s);
  text += fmt::format("                {:.6g} s by formula, {:.6g} s by exact simulation\n",
                      report.chosen.formula_s, report.chosen.simulated_s);
  text += fmt::format(
      "limited by      {}\nlower bound     {:.6g} s (work); the step takes {:.1f} % more\n",
      limited_by(report), report.lower_bound_s, 100 * (step_s / report.lower_bound_s - 1));
  for (std::size_t i = 0; i < report.alone.size(); ++i) {
    text += "alone           " + fmt::format("{} x ", report.alone_devices[i]) +
            peer_row(report, report.alone[i]);
  }
  if (const auto hsr = report.hsr()) {
    text += fmt::format("HSR             {:.4f} of the sum of the classes alone\n", *hsr);
  }
  for (const ScoredPeer& one : report.peers) text += "peer            " + peer_row(report, one);
  for (const std::string& note : report.notes) text += fmt::format("note            {}\n", note);
  return text + fmt::format("search          {:.2f} s, {} candidates{}\n", report.search.seconds,
                            report.search.candidates,
                            report.search.complete ? "" : ", ended by the time limit");
}

}  // namespace heteroperf
