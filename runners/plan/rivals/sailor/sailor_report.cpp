// The output of `plan --import sailor:…` and its plan file; and the claims that `verify` recomputes
// of such a file.
//
// The file holds the plan, the request that it was made for, and claims: predicted times, memory of
// every device, the distance to the lower bound. Verification reads request and plan alone, scores
// the plan anew from the inputs that the request names, and holds the result against each claim. So
// the functions that write the claims are the ones that recompute them, and the two cannot drift
// apart.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "results/verify/claim_checks_json.hpp"
#include "runners/plan/rivals/sailor/sailor_planning.hpp"

namespace heteroperf {
namespace {

/// Adds stages and shares of a plan; places are written by name. A plan has shares of its own, or
/// one size of micro-batches for all.
void add_plan(const SailorPlanReport& report, const SailorPlan& plan, Json& json) {
  Json& stages = json["stages"] = Json::array();
  for (const auto& [layers, groups] : plan.stages) {
    Json replicas = Json::array();
    for (const auto& [count, seat] : groups) {
      replicas.push_back({{"count", count},
                          {"device_class", report.tables.name(seat.place)},
                          {"tensor_parallel", seat.tensor}});
    }
    stages.push_back({{"first_layer", layers.begin},
                      {"last_layer", layers.end - 1},
                      {"replicas", std::move(replicas)}});
  }
  if (plan.shares.empty()) json["micro_batch"] = plan.micro_batch;
  for (const SailorShare& share : plan.shares) {
    json["shares"].push_back({{"pipelines", share.count},
                              {"micro_batch", share.micro_batch},
                              {"micro_batches", share.micro_batches},
                              {"tails", share.tails}});
  }
}

/// A plan with its times by both measures, or the reason why there is none.
Json scored_json(const SailorPlanReport& report, const ScoredPeer& scored) {
  Json json{{"name", scored.name}};
  if (scored.plan.stages.empty()) {
    json["why_not"] = scored.why_not;
    return json;
  }
  json["step_time_s"] = report.seconds(scored);
  json["formula_s"] = scored.formula_s;
  if (scored.simulated_s > 0) json["simulated_s"] = scored.simulated_s;
  json["fits"] = scored.fits;
  if (!scored.why_not.empty()) json["why_not"] = scored.why_not;
  add_plan(report, scored.plan, json["plan"]);
  return json;
}

/// An entry per device: replica after replica, stage after stage.
Json memory_json(const SailorPlanReport& report) {
  Json ranks = Json::array();
  const SailorTables& tables = report.tables;
  const SailorPlan& plan = report.chosen.plan;
  std::vector<std::int64_t> sizes;  // of micro-batches, by pipeline
  for (const SailorShare& share : shares_of(tables, plan)) {
    sizes.insert(sizes.end(), share.count, share.micro_batch);
  }
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (std::size_t replica = 0; const SailorSeat& seat : plan.stages[s].seats()) {
      const auto memory_bytes = [&](std::int64_t size) {
        return tables.memory_bytes(seat.tensor, size, plan.stages[s].layers,
                                   plan.stages.size() - s);
      };
      const double states = memory_bytes(0), bytes = memory_bytes(sizes[replica++ % sizes.size()]);
      for (int t = 0; t < seat.tensor; ++t) {
        ranks.push_back(
            {{"rank", ranks.size()},
             {"stage", s},
             {"device_class", tables.name(seat.place)},
             {"bytes", bytes},
             {"limit_bytes", tables.memory_limit_bytes(seat.place)},
             {"ledger",
              {{"states_and_runtime_bytes", states}, {"activations_bytes", bytes - states}}}});
      }
    }
  }
  return ranks;
}

/// The numbers that are claimed of a plan and that `verify` recomputes.
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

/// The distance to the lower bound.
Json certificate_json(const SailorPlanReport& report) {
  return {{"lower_bound_s", report.lower_bound_s},
          {"gap", report.seconds(report.chosen) / report.lower_bound_s - 1},
          {"binding", "work"}};
}

constexpr const char* format_name = "heteroperf-sailor-plan";
constexpr int format_version = 1;
constexpr std::int64_t most_count = std::int64_t{1} << 40;
constexpr int most_numbered = 1 << 20;

/// Reads the request of a plan file, without its search: inputs, cluster and cost model, and the
/// batch that the claims say.
SailorPlanningRequest read_request(const Json& file, DocumentProblems& problems) {
  SailorPlanningRequest request;
  ObjectReader reader(file, "", problems);
  reader.require({"source", "model", "cluster", "cost_model", "stages"});
  std::string cost_model = "sailor";
  reader.read("source", request.source);
  reader.read("model", request.model);
  reader.read("cluster", request.cluster);
  reader.read("cost_model", cost_model);
  reader.read("fill_profiles", request.fill_profiles);
  const Json::json_pointer samples("/predicted/samples_per_step");
  if (file.contains(samples)) {
    read_value(file.at(samples), samples.to_string(), request.batch.emplace(), problems, 1,
               most_count);
  }
  problems.throw_if_any();
  request.cost_model = parse_cost_model(cost_model);
  return request;
}

/// Reads the plan itself; shapes are checked later, by check_sailor_plan().
SailorPlan read_plan(const Json& file, const SailorTables& tables, DocumentProblems& problems) {
  SailorPlan plan;
  ObjectReader reader(file, "", problems);
  reader.read("micro_batch", plan.micro_batch, 1, most_count);
  reader.for_each("stages", [&](const Json& value, const std::string& path) {
    SailorStage& stage = plan.stages.emplace_back();
    ObjectReader of_stage(value, path, problems);
    of_stage.read("first_layer", stage.layers.begin, 0, most_numbered);
    of_stage.read("last_layer", stage.layers.end, 0, most_numbered);
    ++stage.layers.end;
    of_stage.for_each("replicas", [&](const Json& group, const std::string& at) {
      auto& [count, seat] = stage.replicas.emplace_back();
      std::string place;
      ObjectReader of_group(group, at, problems);
      of_group.read("count", count, 1, most_numbered);
      of_group.read("device_class", place);
      of_group.read("tensor_parallel", seat.tensor, 1, most_numbered);
      const std::size_t zone = std::min(place.find('@'), place.size());
      seat.place = tables.place(place.substr(0, zone), place.substr(zone).erase(0, 1));
    });
  });
  reader.for_each("shares", [&](const Json& value, const std::string& path) {
    SailorShare& share = plan.shares.emplace_back();
    ObjectReader of_share(value, path, problems);
    of_share.read("pipelines", share.count, 1, most_numbered);
    of_share.read("micro_batch", share.micro_batch, 1, most_count);
    of_share.read("micro_batches", share.micro_batches, 1, most_count);
    of_share.read("tails", share.tails, std::int64_t{1}, most_count);
  });
  problems.throw_if_any();
  return plan;
}

/// A plan in one line: both measures, whether it fits, stages and shares.
std::string peer_row(const SailorPlanReport& report, const ScoredPeer& peer) {
  std::string text = fmt::format("{:<16}", peer.name);
  if (peer.plan.stages.empty()) return text + fmt::format("no plan ({})\n", peer.why_not);
  text += fmt::format("{:.4f} s by formula", peer.formula_s);
  if (peer.simulated_s > 0) text += fmt::format(", {:.4f} s simulated", peer.simulated_s);
  if (!peer.fits) text += ", does not fit";
  return text + fmt::format("  {}\n", to_string(peer.plan, report.tables.places()));
}

/// Names what takes most of the step: compute or messages of a stage, or sums over replicas.
std::string limited_by(const SailorPlanReport& report) {
  const SailorReport& parts = report.parts;
  // Sums count as the limit when they take more than half of the step.
  if (parts.reduction_s > 0.5 * parts.step_time_s) return "sums over replicas";
  const auto slowest = std::ranges::max_element(
      parts.stages, {},
      [](const SailorReport::Stage& stage) { return stage.compute_s + stage.communication_s; });
  return fmt::format("{} of stage {}",
                     slowest->communication_s > slowest->compute_s ? "messages" : "compute",
                     slowest - parts.stages.begin());
}

}  // namespace

bool is_sailor_plan_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) &&
         stated_format(read_text_file(path)) == format_name;
}

// The plan is scored anew by the inputs that the file names. A plan that the inputs refuse is a
// failed check, not an error.
Verification verify_sailor_plan_file(const std::string& path) {
  const Json file = parse_strict_json(read_text_file(path), path);
  DocumentProblems problems(path);
  const SailorPlanningRequest request = read_request(file, problems);
  Verification result;
  ClaimChecks checks(result);
  try {
    const SailorPlanReport report = score_sailor(
        request, [&](const SailorTables& tables) { return read_plan(file, tables, problems); });
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
  add_plan(report, report.chosen.plan, json);
  json["predicted"] = predicted_json(report);
  json["memory"] = memory_json(report);
  json["certificate"] = certificate_json(report);
  json["search"] = {{"seconds", report.search.seconds},
                    {"candidates", report.search.candidates},
                    {"peak_rss_bytes", static_cast<std::uint64_t>(usage.ru_maxrss) * 1024},
                    {"complete", report.search.complete}};
  for (const ScoredPeer& place : report.alone) {
    Json alone = scored_json(report, place);
    alone["devices"] = place.devices;
    json["comparison"].push_back(std::move(alone));
  }
  for (const ScoredPeer& peer : report.peers) json["peers"].push_back(scored_json(report, peer));
  if (!report.notes.empty()) json["notes"] = report.notes;
  return json.dump(2) + "\n";
}

std::string sailor_plan_table(const SailorPlanReport& report) {
  const double step_s = report.seconds(report.chosen);
  std::string text =
      fmt::format("{} of {} samples, by {}\n", report.tables.model(), report.tables.global_batch(),
                  to_string(report.request.cost_model));
  text += "stage  layers   compute s   messages s  sum s     fullest device      replicas\n";
  for (std::size_t s = 0; s < report.parts.stages.size(); ++s) {
    const SailorReport::Stage& stage = report.parts.stages[s];
    const SailorStage& planned = report.chosen.plan.stages[s];
    text += fmt::format(
        "{:>5}  {:>2}-{:<4}  {:<10.4g}  {:<10.4g}  {:<8.4g}  {:.2f} of {:.2f} GiB   {}\n", s,
        planned.layers.begin, planned.layers.end - 1, stage.compute_s, stage.communication_s,
        stage.reduction_s, stage.memory_bytes / (1 << 30), stage.memory_limit_bytes / (1 << 30),
        replicas_text(planned, report.tables.places()));
  }
  text += fmt::format("shares          {}\n", shares_text(report.chosen.plan));
  text += fmt::format("step time       {:.6g} s  throughput {:.6g} samples/s\n", step_s,
                      static_cast<double>(report.tables.global_batch()) / step_s);
  text += fmt::format("                {:.6g} s by formula, {:.6g} s by exact simulation\n",
                      report.chosen.formula_s, report.chosen.simulated_s);
  text += fmt::format(
      "limited by      {}\nlower bound     {:.6g} s (work); the step takes {:.1f} % more\n",
      limited_by(report), report.lower_bound_s, 100 * (step_s / report.lower_bound_s - 1));
  for (const ScoredPeer& place : report.alone) {
    text += fmt::format("alone           {} x {}", place.devices, peer_row(report, place));
  }
  if (const auto hsr = report.hsr()) {
    text += fmt::format("HSR             {:.4f} of the sum of the classes alone\n", *hsr);
  }
  for (const ScoredPeer& peer : report.peers) {
    text += "peer            " + peer_row(report, peer);
  }
  for (const std::string& note : report.notes) text += fmt::format("note            {}\n", note);
  return text + fmt::format("search          {:.2f} s, {} candidates{}\n", report.search.seconds,
                            report.search.candidates,
                            report.search.complete ? "" : ", ended by the time limit");
}

}  // namespace heteroperf
