// Runs a plan on the virtual clock of the schedule simulator and tells each rank's part. The
// simulator knows one timeline per position of the pipeline, at the speed of the slowest replica. A
// rank of a faster replica waits more; its own times are found by going through the same timeline
// at its own speed (ReplicaClock).
//
// A request may complete a plan that does not name its workload or cluster but may not contradict
// it. Nothing is trained and no training data are read.
#include "suite/planning/plan_simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/plan/ready/replica_clock.hpp"
#include "runners/plan/rivals/hexiscale/hexiscale_machines.hpp"
#include "suite/program/catalog.hpp"

namespace heteroperf {
namespace {

constexpr std::pair<const char*, Bytes MemoryLedger::*> uses_of_memory[] = {
    {"weights", &MemoryLedger::weights},
    {"gradients", &MemoryLedger::gradients},
    {"optimizer", &MemoryLedger::optimizer},
    {"activations", &MemoryLedger::activations},
    {"buffers", &MemoryLedger::buffers}};

// The request's word comes before the plan's.
const std::string& first_of(const std::string& a, const std::string& b) {
  return a.empty() ? b : a;
}

/// Adds up everything that neither the plan nor the request says.
void require_sources(const Plan& plan, const PlanSimulationRequest& request) {
  ProblemList problems;
  if (request.workload.empty() && !plan.workload) {
    problems.add(fmt::format("{} does not say its workload", request.path),
                 "the model gives the operations", "Give --workload, and --size or --model.");
  }
  if (plan.workload && !request.workload.empty() && request.workload != plan.workload->name) {
    problems.add(fmt::format("--workload {} does not fit {}", request.workload, request.path),
                 "it is a plan of " + plan.workload->name, "Leave --workload out.");
  }
  if (request.cluster.empty() && plan.cluster.empty() && !request.machine) {
    problems.add(fmt::format("{} does not say its cluster", request.path),
                 "the cluster gives rates and links, and no run beside it measured them",
                 fmt::format("Give --cluster with a file (`heteroperf probe -o cluster.json` "
                             "describes this machine), or one of {}.",
                             fmt::join(shipped_cluster_names(), ", ")));
  }
  problems.throw_if_any();
}

}  // namespace

bool is_plan_file(const std::string& path) {
  return std::filesystem::is_regular_file(path) &&
         stated_format(read_text_file(path)) == "heteroperf-plan";
}

Workload simulated_workload(const Plan& plan, const PlanSimulationRequest& request) {
  require_sources(plan, request);
  const PlanWorkload planned = plan.workload.value_or(PlanWorkload());
  WorkloadRequest wanted;
  wanted.size = first_of(request.size, planned.size);
  wanted.model = first_of(request.model, planned.model);
  wanted.precision = parse_precision(first_of(request.precision, planned.precision));
  wanted.freeze = planned.freeze;
  if (planned.sequence_length > 0) wanted.sequence_length = planned.sequence_length;
  if (planned.images > 0) wanted.images = planned.images;
  if (!planned.optimizer.empty()) {
    wanted.optimizer.name = parse_value_name<OptimizerKind>("optimizer", planned.optimizer);
  }
  // The plan's own size, so the machine's scale does not matter here.
  return find_workload(first_of(request.workload, planned.name)).make(wanted, ScalingInput());
}

Cluster simulated_cluster(const Plan& plan, const PlanSimulationRequest& request) {
  require_sources(plan, request);
  const std::string& named = first_of(request.cluster, plan.cluster);
  return plan_cluster(plan, named.empty() ? *request.machine : find_machine(named));
}

ReadyPlan simulate_plan(Plan plan, const PlanSimulationRequest& request, const Cluster& cluster) {
  const Workload workload = simulated_workload(plan, request);
  const TrainingTask task{workload.graph, workload.precision, workload.recipe.kind};
  ReadyPlan result(task, std::move(plan), cluster);
  result.predicted();  // a class without a rate is an error here
  return result;
}

void add_ledger_columns(Table& table) {
  for (const auto& [use, bytes] : uses_of_memory) {
    table.columns.push_back(
        {fmt::format("ledger.{}_bytes", use), use, Unit::bytes, Audience::programs});
  }
}

std::vector<Datum> with_ledger(std::vector<Datum> row, const MemoryLedger& memory) {
  for (const auto& [use, bytes] : uses_of_memory) row.emplace_back((memory.*bytes).value());
  return row;
}

std::vector<PlanRankTimes> plan_rank_times(const ReadyPlan& simulation) {
  const ReplicaClock clock(*simulation.times, simulation.schedule, simulation.timeline);
  std::vector<PlanRankTimes> result;
  for (const RankRole& role : simulation.roles) {
    const ReplicaPass pass = clock.run(role);
    PlanRankTimes& times = result.emplace_back();
    times.compute_s = pass.compute_s;
    for (const RankRole::Part& part : role.parts) {
      // The optimizer runs after the pipeline and is no part of its timeline.
      times.compute_s += simulation.times->optimizer_s[part.stage];
    }
    times.communication_exposed_s =
        pass.communication_s + simulation.prediction->reduction_exposed_s[role.position];
    // Waiting for messages counts as idle here, too.
    times.idle_s = simulation.prediction->step_time_s - times.compute_s;
  }
  return result;
}

double not_computing(const ReadyPlan& simulation, const std::vector<PlanRankTimes>& times) {
  double busy = 0;
  for (const PlanRankTimes& rank : times) busy += rank.compute_s;
  const double all_s = simulation.prediction->step_time_s * static_cast<double>(times.size());
  return all_s > 0 ? 1 - busy / all_s : 0;
}

std::string plan_trace_text(const ReadyPlan& simulation, const TraceOrigin& origin) {
  constexpr double second_us = 1e6;
  const ReplicaClock clock(*simulation.times, simulation.schedule, simulation.timeline);
  std::vector<TraceTrack> tracks;
  for (std::size_t rank = 0; rank < simulation.roles.size(); ++rank) {
    const RankRole& role = simulation.roles[rank];
    // One track per rank, though replicas share a position.
    tracks.push_back({fmt::format("rank {}", rank), role.position.value(), clock.run(role).spans});
    for (TimeSpan& span : tracks.back().spans)
      span = {second_us * span.start, second_us * span.end};
  }
  return trace_text(simulation.schedule, tracks, origin);
}

}  // namespace heteroperf
