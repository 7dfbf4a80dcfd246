// The rates of a machine that a finished run on it teaches: the computing times in the journal of
// the run are compared with the prediction for its plan (learned_rates.hpp).
#include "suite/planning/learned_rates.hpp"

#include <fmt/format.h>

#include <set>

#include "metrics/base/error.hpp"
#include "results/record/run_folder.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "suite/planning/measured_plan.hpp"
#include "suite/planning/plan_simulation.hpp"

namespace heteroperf {
namespace {

/// Reads one run and compares it with its prediction.
class RunLearner {
 public:
  RunLearner(const std::filesystem::path& run, const Cluster& cluster)
      : files_{open_run_folder(run)}, cluster_(cluster) {}

  LearnedRun run() {
    read();
    result_.predicted_step_s = ready(cluster_).predicted().step_time_s;
    compare_classes();
    Cluster relearned = cluster_;
    apply(result_.matrix, relearned);
    result_.relearned_step_s = ready(relearned).predicted().step_time_s;
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const char* why,
                           const char* suggestion = "Give a finished run of a plan.") const {
    throw UserError(fmt::format("{} has nothing to learn from", files_.folder.string()), why,
                    suggestion);
  }

  void read() {
    const std::string plan_file = files_.plan().string();
    if (!is_plan_file(plan_file)) refuse("no plan of a fixed model");
    result_.plan = read_plan_file(plan_file);
    const auto measured = measured_beside(plan_file, plan_cluster(result_.plan, cluster_));
    if (!measured) refuse("no steps");
    journal_ = read_journal(files_.journal().string());
    if (journal_.all<RankTimeEvent>().empty()) refuse("no times by rank");
    result_.run_id = measured->run_id;
    result_.measured_step_s = measured->step_time_s;
    // The run was planned with these rates, so the correction starts from them.
    cluster_ = known_better(std::move(cluster_), result_.plan);
    PlanSimulationRequest request;
    request.path = plan_file;
    request.cluster = "given";
    workload_ = simulated_workload(result_.plan, request);
    ready(cluster_);  // which tells what is wrong with the plan
  }

  /// The plan with the rates of `cluster` alone: what it knew better is in them.
  ReadyPlan ready(const Cluster& cluster) const {
    Plan plan = result_.plan;
    plan.efficiency = {};
    return ready_on({workload_.graph, workload_.precision, workload_.recipe.kind}, std::move(plan),
                    cluster);
  }

  /// The ranks that share layers or sequences with others.
  std::set<int> ranks_in_groups() const {
    std::set<int> ranks;
    for (const PlanStage& stage : result_.plan.stages) {
      for (const StageReplica& replica : stage.replicas) {
        if (replica.ranks.size() < 2 && replica.part.whole()) continue;
        for (const RankId rank : replica.ranks) ranks.insert(rank.value());
      }
    }
    return ranks;
  }

  void compare_classes() {
    const Cluster used = plan_cluster(result_.plan, cluster_);
    const PacingEvent* pacing = journal_.first<PacingEvent>();
    // Emulated devices measure real seconds; modelled ones are that much shorter.
    const double dilation = pacing != nullptr ? pacing->dilation : 1;
    const std::set<int> sharing = ranks_in_groups();
    std::vector<std::optional<double>> measured_s(used.ranks.size());
    for (const RankTimeEvent* time : journal_.all<RankTimeEvent>()) {
      const std::size_t rank = time->rank;
      if (rank >= measured_s.size() || time->steps == 0) continue;
      // An emulated device's waits for those it computes with are real, its work is not.
      if (pacing != nullptr && sharing.contains(time->rank)) continue;
      measured_s[rank] = time->split.compute_s / static_cast<double>(time->steps) / dilation;
    }
    const TrainingTask task{workload_.graph, workload_.precision, workload_.recipe.kind};
    Plan plan = result_.plan;
    plan.efficiency = {};  // what it knew better is in the rates of `used`
    LearnedRates& learned = result_;
    learned = learn_rates(used, task.precision, computing_s(task, plan, used), measured_s,
                          result_.run_id);
    if (!learned.classes.empty()) return;
    refuse("all emulated ranks share their layers or sequences with others",
           "Give a run with tensor- and context-parallel degree 1.");
  }

  RunFiles files_;
  Cluster cluster_;  ///< with what the run's plan knew better
  Journal journal_;
  Workload workload_;
  LearnedRun result_;
};

}  // namespace

LearnedRun learn_from_run(const std::filesystem::path& run, const Cluster& cluster) {
  return RunLearner(run, cluster).run();
}

}  // namespace heteroperf
