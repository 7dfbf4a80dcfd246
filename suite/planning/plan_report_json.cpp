// Writes a plan file with its *claims*, and verifies them. The file begins with the plan itself,
// exactly as every plan file has it; the claims, which are the keys of the report's document, are
// added before its last brace: predicted times, memory by rank, the certificate (a lower bound of
// the step time and what limits it), the search, and comparisons.
//
// Verifying trusts nothing but the plan and the names of its workload and cluster. It makes the
// plan ready again, certifies it again, and holds each claimed number against its own. The
// comparison with classes alone is repeated for each of their plans, since HSR is a quotient over
// them. How the search went cannot be recomputed from a plan and is not checked.
#include <fmt/format.h>

#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "results/verify/claim_checks_json.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/plan/rivals/hexiscale/hexiscale_machines.hpp"
#include "suite/planning/plan_report.hpp"
#include "suite/planning/plan_simulation.hpp"

namespace heteroperf {
namespace {

/// The report's keys as JSON; the plans that are compared stand in the rows that tell of them.
Json claims_of(const PlanReport& report) {
  Json claims = Json::parse(json_text(plan_document(report)));
  for (std::size_t i = 0; i < report.alone.size(); ++i) {
    if (!report.alone[i].plan) continue;
    claims["comparison"][i]["plan"] = Json::parse(plan_text(*report.alone[i].plan));
  }
  if (report.centric && report.centric->plan) {
    claims["centric"]["plan"] = Json::parse(plan_text(*report.centric->plan));
  }
  for (std::size_t i = 0; i < report.imported.size(); ++i) {
    // A plan that could not be read has only the reason.
    if (report.imported[i].plan.stages.empty()) continue;
    claims["imported"][i]["plan"] = Json::parse(plan_text(report.imported[i].plan));
  }
  return claims;
}

/// A claimed plan made ready, with its certificate.
struct CertifiedPlan {
  ReadyPlan ready;
  PlanCertificate certificate;
};

/// The workload and the machine that the plans of a file claim something of.
struct Claimed {
  TrainingTask task;
  const Cluster& cluster;
};

/// Makes a claimed plan ready and certifies it; a plan that is not sound becomes a failed check.
std::optional<CertifiedPlan> certified(const Plan& plan, const Claimed& claimed,
                                       const std::string& name, ClaimChecks& checks) {
  try {
    ReadyPlan ready = ready_on(claimed.task, plan, claimed.cluster);
    PlanCertificate certificate = certify(claimed.task, ready, claimed.cluster);
    checks.sound(name, "");
    return CertifiedPlan{std::move(ready), std::move(certificate)};
  } catch (const UserError& error) {
    checks.sound(name, error.what());
    return std::nullopt;
  }
}

/// The centric plan is a plan of its own; the speedup is over its throughput.
void check_centric(const Json& file, PlanReport& again, const Claimed& claimed,
                   ClaimChecks& checks) {
  if (!file.contains("centric") || !file.at("centric").contains("plan")) return;
  const Plan plan = parse_plan(file.at("centric").at("plan").dump(), "/centric");
  const auto centric = certified(plan, claimed, "/centric/plan", checks);
  if (!centric) return;
  const Prediction& prediction = centric->certificate.prediction;
  checks.claim(file, "/centric/step_time_s", prediction.step_time_s);
  checks.claim(file, "/centric/throughput", prediction.throughput);
  checks.claim(file, "/centric/speedup", again.throughput() / prediction.throughput);
}

/// Every class alone is a plan of its own; HSR is the quotient of what they are worth.
void check_comparison(const Json& file, PlanReport& again, const Claimed& claimed,
                      ClaimChecks& checks) {
  if (!file.contains("comparison") || !file.at("comparison").is_array()) return;
  const Json& list = file.at("comparison");
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].contains("plan")) continue;
    const std::string path = fmt::format("/comparison/{}", i);
    Plan plan = parse_plan(list[i].at("plan").dump(), path);
    const auto alone = certified(plan, claimed, path + "/plan", checks);
    if (!alone) continue;
    const Prediction& prediction = alone->certificate.prediction;
    checks.claim(file, path + "/step_time_s", prediction.step_time_s);
    checks.claim(file, path + "/throughput", prediction.throughput);
    ClassAlone& side = again.alone.emplace_back();
    side.plan = std::move(plan);
    side.step_time_s = prediction.step_time_s;
  }
  if (const auto hsr = again.hsr()) checks.claim(file, "/predicted/hsr", *hsr);
}

}  // namespace

std::string plan_report_json_text(const PlanReport& report) {
  const std::string plan = plan_text(report.plan);
  // The plan keeps its own text and order of keys.
  std::string text = plan.substr(0, plan.find_last_of('}'));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const Json claims = claims_of(report);
  for (const auto& [key, value] : claims.items()) {
    if (!key.starts_with('_')) text += fmt::format(",\n  \"{}\":{}", key, value.dump());
  }
  return text + "\n}\n";
}

Verification verify_plan_file(const std::string& path) {
  PlanSimulationRequest request;
  request.path = path;
  const Plan plan = read_plan_file(path);
  if (plan.cluster.empty()) {
    throw UserError(path + " claims nothing that could be verified", "it does not say its cluster",
                    "Verify the folder of its run.");
  }
  const Json file = parse_strict_json(read_text_file(path), path);
  const Workload workload = simulated_workload(plan, request);
  const Cluster cluster = known_better(find_machine(plan.cluster), plan);
  const Claimed claimed{{workload.graph, workload.precision, workload.recipe.kind}, cluster};
  Verification result;
  ClaimChecks checks(result);
  const auto mix = certified(plan, claimed, "plan", checks);
  // An unsound plan has no numbers to compare with.
  if (!mix) return result;
  PlanReport again;
  again.plan = plan;
  again.certificate = mix->certificate;
  again.expense = step_expense(mix->ready, cluster);
  const Json claims = claims_of(again);
  for (const std::string group : {"/predicted/", "/certificate/"}) {
    for (const auto& [key, value] : claims.at(group.substr(1, group.size() - 2)).items()) {
      checks.claim(file, group + key, value);
    }
  }
  for (const char* list : {"memory", "replicas"}) {
    checks.claim(file, std::string("/") + list, claims.at(list));
  }
  check_comparison(file, again, claimed, checks);
  check_centric(file, again, claimed, checks);
  return result;
}

}  // namespace heteroperf
