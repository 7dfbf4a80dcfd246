// Writes a plan file with its *claims*, and verifies them. The file begins with the plan itself,
// exactly as every plan file has it; the claims are added before its last brace: predicted times,
// memory by rank, the certificate (a lower bound of the step time and what limits it), the search,
// and comparisons.
//
// Verifying trusts nothing but the plan and the names of its workload and cluster. It makes the
// plan ready again, certifies it again, and holds each claimed number against its own. The
// comparison with classes alone is repeated for each of their plans, since HSR is a quotient over
// them. How the search went cannot be recomputed from a plan and is not checked.
#include <fmt/format.h>

#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "metrics/score.hpp"
#include "results/verify/claim_checks_json.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/plan/rivals/hexiscale/hexiscale_machines.hpp"
#include "suite/planning/plan_report.hpp"
#include "suite/planning/plan_simulation.hpp"

namespace heteroperf {
namespace {

/// Tells the bytes that each rank holds at its fullest moment, by use.
Json memory_json(const PlanCertificate& certificate) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < certificate.memory.size(); ++rank) {
    const PlanCertificate::RankMemory& memory = certificate.memory[rank];
    Json object{{"rank", rank}, {"bytes", memory.ledger.total().value()}};
    if (memory.limit > Bytes(0)) object["limit_bytes"] = memory.limit.value();
    object["ledger"] = {{"weights_bytes", memory.ledger.weights.value()},
                        {"gradients_bytes", memory.ledger.gradients.value()},
                        {"optimizer_bytes", memory.ledger.optimizer.value()},
                        {"activations_bytes", memory.ledger.activations.value()},
                        {"buffers_bytes", memory.ledger.buffers.value()}};
    ranks.push_back(std::move(object));
  }
  return ranks;
}

/// A replica's share of the batch is what mixed classes divide unevenly.
Json replicas_json(const Plan& plan, const PlanCertificate& certificate) {
  Json replicas = Json::array();
  for (const StageId s : plan.stages.ids()) {
    for (const StageReplica& replica : plan.stages[s].replicas) {
      const auto rank = replica.ranks.front().index();
      replicas.push_back({{"stage", s.value()},
                          {"device_class", certificate.memory[rank].device_class},
                          {"tensor_parallel", replica.ranks.size()},
                          {"micro_batch", replica.micro_batch},
                          {"batch_share", static_cast<double>(replica.micro_batch) /
                                              static_cast<double>(plan.micro_batch_samples())}});
    }
  }
  return replicas;
}

Json predicted_json(const Plan& plan, const PlanCertificate& certificate,
                    const StepExpense& expense) {
  Json predicted{{"step_time_s", certificate.prediction.step_time_s},
                 {"throughput", certificate.prediction.throughput},
                 {"ops_per_second", certificate.operations_per_s},
                 {"samples_per_step", plan.samples_per_step()}};
  if (expense.cost) predicted["cost_per_step"] = *expense.cost;
  if (expense.joules) predicted["energy_per_step_j"] = *expense.joules;
  return predicted;
}

/// The bound is the largest of several constraints; the binding one is named.
Json certificate_json(const PlanCertificate& certificate) {
  Json path = Json::array(), constraints = Json::array();
  for (const CriticalPart& part : certificate.critical_path) {
    path.push_back({{"position", part.position.value()},
                    {"passes", part.passes},
                    {"start_s", part.start_s},
                    {"end_s", part.end_s}});
  }
  for (const PlanBound::Constraint& constraint : certificate.bound.constraints) {
    constraints.push_back({{"name", constraint.name}, {"seconds", constraint.seconds}});
  }
  return {{"lower_bound_s", certificate.bound.seconds}, {"gap", certificate.gap},
          {"binding", certificate.bound.binding},       {"constraints", std::move(constraints)},
          {"limited_by", certificate.limited_by},       {"critical_path", std::move(path)}};
}

/// These facts differ between two searches and are no claims.
Json search_json(const PlanReport& report) {
  Json search{{"seconds", report.search.seconds},
              {"candidates", report.search.candidates},
              {"simulated", report.search.simulated},
              {"peak_rss_bytes", report.peak_rss_bytes},
              {"seed", report.seed},
              {"objective", report.objective},
              {"complete", report.search.complete},
              {"exhaustive", report.search.exhaustive}};
  if (report.search.plans.size() > 1) {
    search["runner_up_step_time_s"] = report.search.plans[1].predicted().step_time_s;
  }
  return search;
}

Json comparison_json(const PlanReport& report) {
  Json list = Json::array();
  for (const ClassAlone& side : report.alone) {
    Json object{{"device_class", side.device_class}, {"devices", side.devices}};
    if (side.plan) {
      object["step_time_s"] = side.step_time_s;
      object["throughput"] = static_cast<double>(side.plan->samples_per_step()) / side.step_time_s;
      object["plan"] = Json::parse(plan_text(*side.plan));
    } else {
      object["why_not"] = side.why_not;
    }
    list.push_back(std::move(object));
  }
  return list;
}

Json profiled_json(const PlanReport& report) {
  Json list = Json::array();
  for (const ProfiledRates::ClassFit& fit : report.profiled) {
    list.push_back({{"class", fit.device_class},
                    {"entries", fit.entries},
                    {"predicted_s", fit.predicted_s},
                    {"profiled_s", fit.profiled_s},
                    {"error", fit.error}});
  }
  return list;
}

/// `ratio` is the imported throughput over the own one.
Json imported_json(const PlanReport& report) {
  Json list = Json::array();
  for (const ImportedPlan& imported : report.imported) {
    Json object{{"source", imported.source}};
    // A plan that could not be read has only the reason.
    if (!imported.plan.stages.empty()) object["plan"] = Json::parse(plan_text(imported.plan));
    if (imported.why_not.empty()) {
      object["step_time_s"] = imported.step_time_s;
      object["throughput"] = imported.throughput();
      object["ratio"] = imported.throughput() / report.throughput();
    } else {
      object["why_not"] = imported.why_not;
    }
    list.push_back(std::move(object));
  }
  return list;
}

Json rates_json(const RateUse& use) {
  Json operations = Json::array();
  const auto name_of_basis = [](RateBasis basis) {
    return value_names(basis)[static_cast<std::size_t>(basis)];
  };
  for (const RateUse::Operation& entry : use.operations) {
    Json object{{"device_class", entry.device_class},
                {"operation", entry.operation},
                {"shape", entry.shape},
                {"basis", name_of_basis(entry.basis)},
                {"seconds", entry.seconds}};
    if (!entry.source.empty()) object["source"] = entry.source;
    operations.push_back(std::move(object));
  }
  Json rates;
  // The three fractions add up to 1 where anything is computed.
  for (const RateBasis basis : {RateBasis::measured, RateBasis::other_shape, RateBasis::analytic}) {
    rates[fmt::format("{}_fraction", name_of_basis(basis))] = use.fraction(basis);
  }
  rates["operations"] = std::move(operations);
  return rates;
}

/// Errors are relative to the measured step.
Json learned_json(const PlanReport& report) {
  const LearnedRun& run = *report.learned;
  Json classes = Json::array();
  for (const LearnedRun::DeviceTime& device : run.classes) {
    classes.push_back({{"device_class", device.device_class},
                       {"ranks", device.ranks},
                       {"measured_compute_s", device.measured_s},
                       {"predicted_compute_s", device.predicted_s}});
  }
  return {{"run_id", run.run_id},
          {"measured_step_time_s", run.measured_step_s},
          {"predicted_step_time_s", run.predicted_step_s},
          {"error_fraction", run.predicted_step_s / run.measured_step_s - 1},
          {"relearned_step_time_s", run.relearned_step_s},
          {"relearned_error_fraction", run.relearned_step_s / run.measured_step_s - 1},
          {"classes", std::move(classes)},
          {"replan_gain", *report.replan_gain()},
          {"replan_suggested", *report.replan_gain() > report.replan_threshold}};
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

/// Every class alone is a plan of its own; HSR is the quotient of what they are worth.
void check_comparison(const Json& file, const PlanCertificate& mix, const Claimed& claimed,
                      ClaimChecks& checks) {
  if (!file.contains("comparison") || !file.at("comparison").is_array()) return;
  double sum = 0;
  const Json& list = file.at("comparison");
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].contains("plan")) continue;
    const std::string path = fmt::format("/comparison/{}", i);
    const Plan plan = parse_plan(list[i].at("plan").dump(), path);
    const auto alone = certified(plan, claimed, path + "/plan", checks);
    if (!alone) continue;
    const Prediction& prediction = alone->certificate.prediction;
    checks.claim(file, path + "/step_time_s", prediction.step_time_s);
    checks.claim(file, path + "/throughput", prediction.throughput);
    sum += prediction.throughput;
  }
  if (const auto hsr = heterogeneous_speed_ratio(mix.prediction.throughput, sum)) {
    checks.claim(file, "/predicted/hsr", *hsr);
  }
}

}  // namespace

std::string plan_report_json_text(const PlanReport& report) {
  const std::string plan = plan_text(report.plan);
  // The plan keeps its own text and order of keys.
  std::string text = plan.substr(0, plan.find_last_of('}'));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const auto add = [&](const char* key, const Json& value) {
    text += fmt::format(",\n  \"{}\":{}", key, value.dump());
  };
  Json predicted = predicted_json(report.plan, report.certificate, report.expense);
  // A comparison that found no plan for any class has no quotient.
  if (const auto hsr = report.hsr()) predicted["hsr"] = *hsr;
  add("replicas", replicas_json(report.plan, report.certificate));
  add("predicted", predicted);
  add("memory", memory_json(report.certificate));
  add("certificate", certificate_json(report.certificate));
  add("search", search_json(report));
  add("rates", rates_json(report.rates));
  if (!report.alone.empty()) add("comparison", comparison_json(report));
  if (!report.profiled.empty()) add("profiled", profiled_json(report));
  if (!report.imported.empty()) add("imported", imported_json(report));
  if (report.learned) add("learned", learned_json(report));
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
  const PlanCertificate& certificate = mix->certificate;
  const StepExpense expense = step_expense(mix->ready, cluster);
  const Json predicted = predicted_json(plan, certificate, expense);
  for (const auto& [key, value] : predicted.items()) {
    checks.claim(file, "/predicted/" + key, value);
  }
  const Json claims = certificate_json(certificate);
  for (const auto& [key, value] : claims.items()) checks.claim(file, "/certificate/" + key, value);
  checks.claim(file, "/memory", memory_json(certificate));
  checks.claim(file, "/replicas", replicas_json(plan, certificate));
  check_comparison(file, certificate, claimed, checks);
  return result;
}

}  // namespace heteroperf
