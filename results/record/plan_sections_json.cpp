// The sections of record.json that speak of a plan: where the time of each rank, stage and device
// class went, the work for each component of the model, the memory that the plan foresaw beside the
// measured peaks, the simulator's prediction beside the measured step, the lateness of emulated
// devices, and a mix of device classes against its classes alone. A value that the journal cannot
// give is left out; no key is ever null.
#include "results/record/plan_sections_json.hpp"

#include <cmath>
#include <functional>
#include <map>

#include "results/record/stored_document_json.hpp"

namespace heteroperf {
namespace {

/// Seconds by use, then what was done in them.
void put_time(Json& json, const RankTimeGroup& group) {
  json["steps"] = group.steps;
  json["wall"] = group.wall_s;
  json["compute"] = group.split.compute_s;
  json["communication_exposed"] = group.split.communication_s;
  json["bubble"] = group.split.bubble_s;
  json["data"] = group.split.data_s;
  json["other"] = group.split.other_s;
  json["strict"] = group.strict.to_string();
  if (group.recompute != Ops()) json["recompute"] = group.recompute.to_string();
  json["ops_per_second"] = group.ops_per_second();
}

/// Returns a rank's place in the plan; its number comes first.
Json place_of(const RankUse& use) {
  Json json{{"rank", use.rank}};
  if (!use.plan) return json;
  json["position"] = use.plan->position;
  json["stages"] = use.plan->stages;
  if (use.plan->tensor_degree > 1) {
    json["tensor"] = {{"index", use.plan->tensor_index}, {"degree", use.plan->tensor_degree}};
  }
  if (!use.plan->device_class.empty()) json["device_class"] = use.plan->device_class;
  return json;
}

/// Returns one entry per value of `key`, in the order of the keys. `begin` makes the entry's first
/// keys from the first of its ranks; the times of all its ranks follow.
template <class Key>
Json grouped(const std::vector<RankUse>& ranks, Key&& key,
             const std::function<Json(const RankPlanEvent&)>& begin) {
  using KeyOf = std::decay_t<decltype(key(*ranks.front().plan))>;
  std::map<KeyOf, std::pair<Json, RankTimeGroup>> groups;
  for (const RankUse& use : ranks) {
    if (!use.plan || !use.time) continue;
    auto& [json, group] = groups[key(*use.plan)];
    if (group.ranks == 0) json = begin(*use.plan);
    group.add(*use.time);
  }
  Json list = Json::array();
  for (auto& [unused, entry] : groups) {
    entry.first["ranks"] = entry.second.ranks;
    put_time(entry.first, entry.second);
    list.push_back(std::move(entry.first));
  }
  return list;
}

/// Writes the parts of a rank's planned memory and their sum, in bytes.
Json ledger(const RankPlanEvent& plan) {
  return {{"weights", plan.weights_bytes},     {"gradients", plan.gradients_bytes},
          {"optimizer", plan.optimizer_bytes}, {"activations", plan.activations_bytes},
          {"buffers", plan.buffers_bytes},     {"total", plan.total_bytes()}};
}

/// Throughputs are samples per second inside the program; `units` turns them into the record's
/// unit.
void put_figures(Json& json, const std::optional<HeteroFigures>& figures, double units) {
  if (!figures) return;
  json["hsr"] = figures->hsr();
  json["gain"] = figures->gain();
  json["mix"] = figures->mix * units;
  json["best_single"] = figures->best_single * units;
  json["best_class"] = figures->best_class;
  json["ideal_sum"] = figures->ideal_sum * units;
}

/// One class of devices alone: its plan, its numbers, and its own run or why it has none.
Json baseline_json(const BaselineEvent& baseline, double units) {
  Json json{{"device_class", baseline.device_class}, {"count", baseline.count}};
  put(json, "plan", baseline.plan);
  if (baseline.samples_per_s) json["throughput"] = *baseline.samples_per_s * units;
  if (baseline.planned_samples_per_s) {
    json["planned_throughput"] = *baseline.planned_samples_per_s * units;
  }
  if (baseline.loss_difference) json["loss_difference"] = *baseline.loss_difference;
  put(json, "folder", baseline.folder);
  put(json, "record_sha256", baseline.record_sha256);
  put(json, "reason", baseline.reason);
  return json;
}

}  // namespace

void put_rank_times(Json& split, const PlanSummary& plan) {
  Json ranks = Json::array();
  for (const RankUse& use : plan.ranks) {
    if (!use.time) continue;
    RankTimeGroup alone;
    alone.add(*use.time);
    put_time(ranks.emplace_back(place_of(use)), alone);
  }
  if (ranks.empty()) return;
  split["per_rank"] = std::move(ranks);
  // Ranks of one place in the pipeline hold the same stages, whatever their replica.
  const auto by_stage = [](const RankPlanEvent& p) { return std::pair(p.position, p.stages); };
  split["per_stage"] = grouped(plan.ranks, by_stage, [](const RankPlanEvent& p) {
    return Json{{"position", p.position}, {"stages", p.stages}};
  });
  const auto by_class = [](const RankPlanEvent& p) { return p.device_class; };
  split["per_class"] = grouped(plan.ranks, by_class, [](const RankPlanEvent& p) {
    return Json{{"device_class", p.device_class}};
  });
}

/// A list is written only where it has a value for every rank, so that its index is the rank.
void put_planned_memory(Json& memory, const RunSummary& summary) {
  Json planned = Json::array(), limits = Json::array(), ledgers = Json::array();
  std::optional<double> worst;
  for (const RankUse& use : summary.plan.ranks) {
    if (!use.plan) return;
    const std::uint64_t bytes = use.plan->total_bytes();
    if (bytes > 0) {
      planned.push_back(bytes);
      ledgers.push_back(ledger(*use.plan));
    }
    if (use.plan->limit_bytes) limits.push_back(*use.plan->limit_bytes);
    const std::size_t rank = use.rank;
    if (bytes == 0 || rank >= summary.peak_bytes.size()) continue;
    const double error =
        static_cast<double>(summary.peak_bytes[rank]) / static_cast<double>(bytes) - 1;
    // A plan is judged by the rank that it foresaw worst, in either direction.
    if (!worst || std::fabs(error) > std::fabs(*worst)) worst = error;
  }
  const std::size_t ranks = summary.plan.ranks.size();
  if (ranks == 0) return;
  if (planned.size() == ranks) {
    memory["planned_per_rank"] = std::move(planned);
    put(memory, "worst_error_fraction", worst);
    memory["ledger_per_rank"] = std::move(ledgers);
  }
  if (limits.size() == ranks) memory["limit_per_rank"] = std::move(limits);
}

Json prediction_section(const PlanSummary& plan) {
  if (!plan.prediction) return {};
  const PredictionEvent& predicted = plan.prediction->predicted;
  Json json{{"step_time_s", predicted.step_time_s}};
  put(json, "error_fraction", plan.prediction->error_fraction);
  json["samples_per_s"] = predicted.samples_per_s;
  json["bubble_rate"] = predicted.bubble_rate;
  json["pipeline_bubble_rate"] = predicted.pipeline_bubble_rate;
  Json measured;
  put(measured, "step_time_s", plan.prediction->step_time_s);
  put(measured, "samples_per_s", plan.samples_per_s);
  put(measured, "bubble_rate", plan.bubble_rate);
  if (!measured.empty()) json["measured"] = std::move(measured);
  return json;
}

Json adaptation_section(const Journal& journal, const PlanSummary& plan) {
  const auto* start = journal.first<StartEvent>();
  if (start == nullptr || !start->adapt_every) return {};
  std::uint64_t changes = 0;
  double away_s = 0;
  Json list = Json::array();
  for (const auto& [look, steps, step_time_s, error_fraction] : plan.looks) {
    away_s += look.search_s.value_or(0) + look.move_s.value_or(0);
    Json& json = list.emplace_back(Json{{"n", look.n},
                                        {"decision", to_string(look.decision)},
                                        {"deviation", look.deviation},
                                        {"planned_step_s", look.planned_step_s},
                                        {"measured_step_s", look.measured_step_s}});
    json["classes"] = Json::array();
    for (const ClassComputing& told : look.classes) {
      json["classes"].push_back({{"device_class", told.device_class},
                                 {"planned_s", told.planned_s},
                                 {"measured_s", told.measured_s}});
    }
    put(json, "reason", look.reason);
    put(json, "search_s", look.search_s);
    put(json, "kept_step_s", look.kept_step_s);
    put(json, "new_step_s", look.new_step_s);
    put(json, "gain", look.gain);
    if (look.decision != AdaptDecision::new_plan) continue;
    ++changes;
    put(json, "plan_summary", look.summary);
    put(json, "move_s", look.move_s);
    put(json, "moved_bytes", look.moved_bytes);
    if (!step_time_s) continue;
    json["outcome"] = {{"steps", steps}, {"step_time_s", *step_time_s}};
    put(json["outcome"], "error_fraction", error_fraction);
  }
  return {{"every_steps", *start->adapt_every},
          {"plan_changes", changes},
          {"away_s", away_s},
          {"looks", std::move(list)}};
}

Json components_section(const std::vector<ComponentSummary>& components) {
  Json list = Json::array();
  for (const auto& [counts, recompute, time_fraction, border] : components) {
    Json& json = list.emplace_back(Json{{"name", counts.name},
                                        {"parameters", std::to_string(counts.parameters)},
                                        {"strict", counts.strict.train().to_string()},
                                        {"padding", counts.padding.to_string()}});
    put(json, "recompute", recompute);
    put(json, "time_fraction", time_fraction);
    if (!border) continue;
    json["border_bytes"] = {
        {"planned", border->planned}, {"least", border->least}, {"measured", border->measured}};
  }
  return list.empty() ? Json() : list;
}

Json pacing_section(const PlanSummary& plan) {
  if (!plan.pacing) return {};
  return {{"dilation", plan.pacing->dilation},
          {"operations", plan.pacing->operations},
          {"late", plan.pacing->late},
          {"late_fraction", plan.pacing->late_fraction()},
          {"worst_lateness_s", plan.pacing->worst_lateness_s}};
}

/// A token workload counts tokens per second here, as its throughput does.
Json hetero_section(const Journal& journal, const HeteroSummary& hetero) {
  const auto* workload = journal.first<WorkloadEvent>();
  const double units = workload == nullptr ? 1 : workload->units_of_sample();
  Json json;
  put_figures(json, hetero.measured, units);
  if (workload != nullptr) json["unit"] = workload->unit + "/s";
  if (hetero.planned) put_figures(json["planned"], hetero.planned, units);
  json["baselines"] = Json::array();
  for (const BaselineEvent* baseline : journal.all<BaselineEvent>()) {
    json["baselines"].push_back(baseline_json(*baseline, units));
  }
  return json;
}

}  // namespace heteroperf
