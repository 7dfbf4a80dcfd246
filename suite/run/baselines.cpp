// A *baseline* is one device class of a mixed cluster that trains the same workload alone. The
// record sets the mixed run against the sum of its baselines, so each must be as good as that class
// can be: it gets the best plan that the planner finds for it, with the samples per step of the
// mixed run.
//
// Emulated devices can be played by any rank, so the first ranks of the world stand for a class of
// them and rank 0 is always among them; real devices are the ranks that they are. A baseline reuses
// the world of the mixed run, split into members and bystanders. Rank 0 writes the journal of every
// baseline, whether it is a member or not. A class that cannot run the workload is no failure of
// the run: its reason goes into the journal.
#include "suite/run/prepare.hpp"

#include <algorithm>

#include "metrics/base/error.hpp"
#include "results/journal_checks/journal_checks.hpp"
#include "results/text/sha256.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/search/baseline_plans.hpp"
#include "suite/run/run_recorder.hpp"

namespace heteroperf {
namespace {

/// The part of a placement that ranks of the run have in a run of their own.
Placement part_of_placement(const Placement& placement, const std::vector<RankId>& ranks) {
  Placement part = placement;
  part.ranks = static_cast<int>(ranks.size());
  part.bindings.clear();
  part.cpus.clear();
  part.devices.clear();
  for (const RankId rank : ranks) {
    const auto r = rank.index();
    part.bindings.push_back(placement.bindings[r % placement.bindings.size()]);
    if (!placement.devices.empty()) {
      part.devices.push_back(placement.devices[r % placement.devices.size()]);
    }
    if (!placement.cpus.empty()) part.cpus.push_back(placement.cpus[r % placement.cpus.size()]);
  }
  return part;
}

// Only an even plan can be said with the four degrees and a batch; its baseline can then be
// repeated with flags alone.
bool is_even(const Plan& plan) {
  const StageReplica& first = plan.stages.front().replicas.front();
  return std::all_of(plan.stages.begin(), plan.stages.end(), [&](const PlanStage& stage) {
    return stage.replicas.size() == plan.stages.front().replicas.size() &&
           std::all_of(stage.replicas.begin(), stage.replicas.end(), [&](const StageReplica& r) {
             return r.ranks.size() == first.ranks.size() && r.micro_batch == first.micro_batch &&
                    r.part.parts == first.part.parts;
           });
  });
}

RunConfig config_of(const RunConfig& config, const ChosenPlan& chosen) {
  RunConfig run_config = config;
  const Plan& plan = chosen.plan;
  // A baseline writes no trace and no checkpoints, keeps its plan and has no baselines itself.
  run_config.with_baselines = false;
  run_config.trace.clear();
  run_config.checkpoint = {};
  run_config.adapt = {};
  run_config.parent.reset();
  run_config.scale.ranks = plan.ranks();
  run_config.plan = PlanConfig{};
  run_config.batch = {};
  run_config.plan.schedule = plan.schedule;
  if (!is_even(plan)) return run_config;  // the record's plan says it
  run_config.plan.pipeline = static_cast<int>(plan.stages.size());
  run_config.plan.tensor = static_cast<int>(plan.stages.front().replicas.front().ranks.size());
  run_config.plan.context = plan.stages.front().replicas.front().part.parts;
  run_config.plan.data =
      static_cast<int>(plan.stages.front().replicas.size()) / run_config.plan.context;
  run_config.batch = {plan.stages.front().replicas.front().micro_batch, plan.micro_batches};
  return run_config;
}

/// A plan that its file tells all of: the whole cluster's, with the devices that it uses.
Plan with_sources(Plan plan, const Plan& mix, const std::vector<RankId>& ranks) {
  plan.workload = mix.workload;
  plan.cluster = mix.cluster;
  plan = on_whole_cluster(std::move(plan), ranks);
  return mix.devices.empty() ? plan : on_whole_cluster(std::move(plan), mix.devices);
}

Baseline make_baseline(const PreparedRun& run, const ClassRanks& members) {
  const ChosenPlan& mix = *run.plan;
  Baseline baseline{members.device_class, members.ranks, nullptr, ""};
  // The first ranks stand for emulated devices, among them rank 0.
  for (std::size_t r = 0; mix.emulated && r < baseline.ranks.size(); ++r) {
    baseline.ranks[r] = RankId(r);
  }
  PlanningRequest request;
  request.precision = run.workload.precision;
  request.optimizer = run.workload.recipe.kind;
  // The comparison holds only for equal samples per step.
  request.batch = static_cast<std::int64_t>(mix.plan.samples_per_step());
  try {
    const Cluster part = part_of_cluster(known_better(*mix.cluster, mix.plan), members.ranks);
    Plan plan = best_plan_alone(run.workload.graph, part, request, {}, mix.plan.schedule,
                                CutSearch::is_dropped)
                    .plan;
    plan.efficiency = mix.plan.efficiency;
    PreparedRun alone{run.config, part_of_placement(run.placement, baseline.ranks), run.workload, 0,
                      run.reproduce};
    alone.plan = complete_plan(with_sources(std::move(plan), mix.plan, members.ranks), run.workload,
                               part_of_cluster(*mix.cluster, members.ranks));
    alone.config = config_of(run.config, *alone.plan);
    Slowdown& slow = alone.config.pace.slow;
    if (slow.device_class != members.device_class) slow = {};
    slow_down(*alone.plan, run.workload, slow);
    baseline.run = std::make_shared<const PreparedRun>(std::move(alone));
  } catch (const UserError& error) {
    baseline.reason = error.what();
  }
  return baseline;
}

BaselineEvent event_of(const Baseline& baseline) {
  BaselineEvent event;
  event.device_class = baseline.device_class;
  event.count = static_cast<std::uint32_t>(baseline.ranks.size());
  event.reason = baseline.reason;
  if (!baseline.run) return event;
  event.plan = summary_text(baseline.run->plan->plan);
  if (baseline.run->plan->prediction) {
    event.planned_samples_per_s = baseline.run->plan->prediction->throughput;
  }
  return event;
}

/// Runs one baseline on its ranks of the world; others wait. Rank 0 writes its journal, a member or
/// not. Collective.
ProgramEnd run_baseline(const Baseline& baseline, World& world, Engine& engine,
                        const FirstRank& mix) {
  const PreparedRun& run = *baseline.run;
  const std::string folder = "baseline-" + baseline.device_class;
  std::optional<RunRecorder> recorder;
  if (mix.journal != nullptr) {
    recorder.emplace(run.config, RunIdentity{{}, run.reproduce}, run.workload.name,
                     mix.folder / folder);
    recorder->describe(run, engine.libtorch_version());
  }
  const RankId me = world.communicator->rank();
  const std::vector<RankId>& ranks = baseline.ranks;
  const bool member = std::find(ranks.begin(), ranks.end(), me) != ranks.end();
  // The two halves of the split never exchange data; the control channel stays the world's, so
  // that a member's events still reach rank 0.
  World half{world.communicator->split(member ? 1 : 0, me.value()), world.control};
  ProgramEnd end;
  {
    // A rank 0 that is no member serves their events, until the barrier says that the run is over.
    std::optional<ServiceScope> service;
    if (!member && recorder) service.emplace(*world.control, answer_ranks(recorder->journal()));
    if (member) {
      end = run_workload(run, half, engine,
                         recorder ? recorder->first_rank(mix.progress, nullptr) : FirstRank{});
    }
    world.communicator->barrier();
  }
  // Bystanders did not see the stop: the first member tells them, so that all ranks skip the
  // baselines that follow.
  end.interrupted = share_answer(*world.communicator, end.interrupted, ranks.front());
  if (!recorder) return end;
  recorder->finish(end.interrupted ? RunStatus::partial : RunStatus::complete, end.reason, 0);
  BaselineEvent event = event_of(baseline);
  event.folder = folder;
  // The throughput of a finished baseline, or the reason why it does not count.
  if (!end.interrupted) {
    const RunFiles& files = recorder->files();
    event.record_sha256 = sha256_file_hex(files.record().string());
    // The mix has written its steps: a line of a phase, which came behind them, waits for the file.
    const BaselineResult result =
        baseline_result(read_journal(files.journal().string()), read_journal(mix.journal->path()));
    event.samples_per_s = result.samples_per_s;
    event.loss_difference = result.loss_difference;
    event.reason = result.reason;
  }
  mix.journal->append(event);
  return end;
}

}  // namespace

std::vector<Baseline> choose_baselines(const PreparedRun& run) {
  std::vector<Baseline> baselines;
  if (!run.plan || !run.plan->cluster) return baselines;
  if (!run.plan->prediction && !run.config.with_baselines) return baselines;
  const std::vector<ClassRanks> classes = ranks_by_class(*run.plan->cluster);
  if (classes.size() < 2) return baselines;
  for (const ClassRanks& members : classes) baselines.push_back(make_baseline(run, members));
  return baselines;
}

ProgramEnd run_baselines(const PreparedRun& run, World& world, Engine& engine,
                         const FirstRank& first) {
  for (const Baseline& baseline : run.baselines) {
    if (run.config.with_baselines && baseline.run) {
      const ProgramEnd end = run_baseline(baseline, world, engine, first);
      if (end.interrupted) return end;
    } else if (first.journal != nullptr) {
      first.journal->append(event_of(baseline));
    }
  }
  return {};
}

}  // namespace heteroperf
