#include <fmt/format.h>
#include <sys/resource.h>

#include <filesystem>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "suite/planning/claim_checks_json.hpp"
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

Json certificate_json(const SailorPlanReport& report) {
  return {{"lower_bound_s", report.lower_bound_s},
          {"gap", report.seconds(report.chosen) / report.lower_bound_s - 1},
          {"binding", "work"}};
}

constexpr const char* format_name = "heteroperf-sailor-plan";
constexpr int format_version = 1;
constexpr std::int64_t most_count = std::int64_t{1} << 40;
constexpr int most_numbered = 1 << 20;

/// Reads a plan and what it was made for; places are looked up in the inputs.
class SailorPlanReader {
 public:
  SailorPlanReader(const Json& file, const std::string& path) : file_(file), problems_(path) {}

  SailorPlanningRequest request() {
    SailorPlanningRequest result;
    ObjectReader reader(file_, "", problems_);
    reader.require({"source", "model", "cluster", "cost_model", "stages"});
    std::string cost_model = "sailor";
    reader.read("source", result.source);
    reader.read("model", result.model);
    reader.read("cluster", result.cluster);
    reader.read("cost_model", cost_model);
    reader.read("fill_profiles", result.fill_profiles);
    problems_.throw_if_any();
    result.cost_model = parse_cost_model(cost_model);
    const Json::json_pointer samples("/predicted/samples_per_step");
    std::int64_t batch = 0;
    if (file_.contains(samples)) {
      read_value(file_.at(samples), samples.to_string(), batch, problems_, 1, most_count);
      result.batch = batch;
    }
    problems_.throw_if_any();
    return result;
  }

  SailorPlan plan(const SailorTables& tables) {
    SailorPlan plan;
    ObjectReader reader(file_, "", problems_);
    reader.read("micro_batch", plan.micro_batch, 1, most_count);
    reader.for_each("stages", [&](const Json& value, const std::string& path) {
      SailorStage& stage = plan.stages.emplace_back();
      ObjectReader of_stage(value, path, problems_);
      of_stage.read("first_layer", stage.begin, 0, most_numbered);
      of_stage.read("last_layer", stage.end, 0, most_numbered);
      ++stage.end;
      of_stage.for_each("replicas", [&](const Json& group, const std::string& at) {
        stage.replicas.push_back(replicas(group, at, tables));
      });
    });
    reader.for_each("shares", [&](const Json& value, const std::string& path) {
      SailorShare& share = plan.shares.emplace_back();
      ObjectReader of_share(value, path, problems_);
      of_share.read("pipelines", share.count, 1, most_numbered);
      of_share.read("micro_batch", share.micro_batch, 1, most_count);
      of_share.read("micro_batches", share.micro_batches, 1, most_count);
      of_share.read("tails", share.tails, std::int64_t{1}, most_count);
    });
    problems_.throw_if_any();
    return plan;
  }

 private:
  SailorReplicas replicas(const Json& value, const std::string& path, const SailorTables& tables) {
    SailorReplicas group;
    std::string place;
    ObjectReader reader(value, path, problems_);
    reader.read("count", group.count, 1, most_numbered);
    reader.read("device_class", place);
    reader.read("tensor_parallel", group.tensor, 1, most_numbered);
    const std::size_t at = place.find('@');
    group.place =
        tables.place(place.substr(0, at), at == std::string::npos ? "" : place.substr(at + 1));
    return group;
  }

  const Json& file_;
  DocumentProblems problems_;
};

}  // namespace

bool is_sailor_plan_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) &&
         stated_format(read_text_file(path)) == format_name;
}

Verification verify_sailor_plan_file(const std::string& path) {
  const Json file = parse_strict_json(read_text_file(path), path);
  SailorPlanReader reader(file, path);
  const SailorPlanningRequest request = reader.request();
  Verification result;
  ClaimChecks checks(result);
  try {
    const SailorPlanReport report = score_sailor(request, reader.plan(sailor_tables_of(request)));
    checks.sound("plan", "");
    const Json predicted = predicted_json(report);
    for (const auto& [key, value] : predicted.items()) {
      checks.claim(file, "/predicted/" + key, value);
    }
    checks.claim(file, "/memory", memory_json(report));
    checks.claim(file, "/certificate", certificate_json(report));
  } catch (const UserError& error) {
    checks.sound("plan", error.what());
  }
  return result;
}

std::string sailor_plan_json_text(const SailorPlanReport& report) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  Json json{{"_format", format_name},
            {"_version", format_version},
            {"source", report.request.source},
            {"model", report.tables.model()},
            {"cluster", report.request.cluster},
            {"cost_model", to_string(report.request.cost_model)},
            {"fill_profiles", report.request.fill_profiles},
            {"schedule", "1f1b"}};
  const Json plan = plan_json(report, report.chosen.plan);
  for (const auto& [key, value] : plan.items()) json[key] = value;
  json["predicted"] = predicted_json(report);
  json["memory"] = memory_json(report);
  json["certificate"] = certificate_json(report);
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
