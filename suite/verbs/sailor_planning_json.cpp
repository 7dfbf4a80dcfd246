#include <sys/resource.h>

#include "metrics/strict_json.hpp"
#include "suite/verbs/sailor_planning.hpp"

namespace heteroperf {
namespace {

Json shares_json(const SailorPlan& plan) {
  Json shares = Json::array();
  for (const SailorShare& share : plan.shares) {
    shares.push_back({{"pipelines", share.count},
                      {"micro_batch", share.micro_batch},
                      {"micro_batches", share.micro_batches},
                      {"tails", share.tails}});
  }
  return shares;
}

Json stages_json(const SailorPlanReport& report, const SailorPlan& plan) {
  Json stages = Json::array();
  for (const SailorStage& stage : plan.stages) {
    Json replicas = Json::array();
    for (const SailorReplicas& group : stage.replicas) {
      replicas.push_back(
          {{"count", group.count},
           {"device_class", report.tables.places()[static_cast<std::size_t>(group.place)]},
           {"tensor_parallel", group.tensor}});
    }
    stages.push_back({{"first_layer", stage.begin},
                      {"last_layer", stage.end - 1},
                      {"replicas", std::move(replicas)}});
  }
  return stages;
}

Json plan_json(const SailorPlanReport& report, const SailorPlan& plan) {
  Json json{{"stages", stages_json(report, plan)}};
  if (plan.shares.empty()) {
    json["micro_batch"] = plan.micro_batch;
  } else {
    json["shares"] = shares_json(plan);
  }
  return json;
}

Json scored_json(const SailorPlanReport& report, const ScoredPeer& one) {
  Json json{{"name", one.name}};
  if (one.plan.stages.empty()) {
    json["why_not"] = one.why_not;
    return json;
  }
  json["step_time_s"] = report.seconds(one);
  json["formula_s"] = one.formula_s;
  if (one.simulated_s > 0) json["simulated_s"] = one.simulated_s;
  json["fits"] = one.fits;
  if (!one.why_not.empty()) json["why_not"] = one.why_not;
  json["plan"] = plan_json(report, one.plan);
  return json;
}

/// By device: replica after replica, stage after stage.
Json memory_json(const SailorPlanReport& report) {
  Json ranks = Json::array();
  const SailorPlan& plan = report.chosen.plan;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const SailorStage& stage = plan.stages[s];
    std::size_t share = 0;
    int left = plan.shares.empty() ? 0 : plan.shares[0].count;
    for (const SailorReplicas& group : stage.replicas) {
      for (int i = 0; i < group.count; ++i) {
        if (!plan.shares.empty() && left == 0) left = plan.shares[++share].count;
        --left;
        const std::int64_t size =
            plan.shares.empty() ? plan.micro_batch : plan.shares[share].micro_batch;
        const auto bytes = [&](std::int64_t samples) {
          return report.tables.memory_bytes(group.tensor, samples, stage.begin, stage.end,
                                            static_cast<int>(plan.stages.size() - s));
        };
        for (int t = 0; t < group.tensor; ++t) {
          ranks.push_back(
              {{"rank", ranks.size()},
               {"stage", s},
               {"device_class", report.tables.places()[static_cast<std::size_t>(group.place)]},
               {"bytes", bytes(size)},
               {"limit_bytes", report.tables.memory_limit_bytes(group.place)},
               {"ledger",
                {{"states_and_runtime_bytes", bytes(0)},
                 {"activations_bytes", bytes(size) - bytes(0)}}}});
        }
      }
    }
  }
  return ranks;
}

Json predicted_json(const SailorPlanReport& report) {
  const double step_s = report.seconds(report.chosen);
  Json predicted{{"step_time_s", step_s},
                 {"throughput", static_cast<double>(report.tables.global_batch()) / step_s},
                 {"formula_s", report.chosen.formula_s}};
  if (report.chosen.simulated_s > 0) predicted["simulated_s"] = report.chosen.simulated_s;
  if (const auto hsr = report.hsr()) predicted["hsr"] = *hsr;
  predicted["samples_per_step"] = report.tables.global_batch();
  predicted["pipeline_s"] = report.parts.pipeline_s;
  predicted["update_s"] = report.parts.update_s;
  predicted["reduction_s"] = report.parts.reduction_s;
  return predicted;
}

}  // namespace

std::string sailor_plan_json_text(const SailorPlanReport& report) {
  const double step_s = report.seconds(report.chosen);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  Json json{{"_format", "heteroperf-sailor-plan"},
            {"_version", 1},
            {"source", report.request.source},
            {"model", report.tables.model()},
            {"cluster", report.request.cluster},
            {"cost_model", to_string(report.request.cost_model)},
            {"schedule", "1f1b"}};
  const Json plan = plan_json(report, report.chosen.plan);
  for (const auto& [key, value] : plan.items()) json[key] = value;
  json["predicted"] = predicted_json(report);
  json["memory"] = memory_json(report);
  json["certificate"] = {{"lower_bound_s", report.lower_bound_s},
                         {"gap", step_s / report.lower_bound_s - 1},
                         {"binding", "work"}};
  json["search"] = {{"seconds", report.search.seconds},
                    {"candidates", report.search.candidates},
                    {"peak_rss_bytes", static_cast<std::uint64_t>(usage.ru_maxrss) * 1024},
                    {"complete", report.search.complete}};
  for (std::size_t i = 0; i < report.alone.size(); ++i) {
    Json one = scored_json(report, report.alone[i]);
    one["devices"] = report.alone_devices[i];
    json["comparison"].push_back(std::move(one));
  }
  for (const ScoredPeer& one : report.peers) json["peers"].push_back(scored_json(report, one));
  if (!report.notes.empty()) json["notes"] = report.notes;
  return json.dump(2) + "\n";
}

}  // namespace heteroperf
