// Corrects the rates of a described machine by what a run on it measured. The plan of the run is
// predicted with the description, and each class's predicted computing time per step is divided by
// the one that its ranks measured. All rates of that class in the precision of the run are
// multiplied by this factor and marked as probed. One factor per class is all that a run can teach:
// it shows sums over operations, not single ones.
//
// Messages must not enter the comparison. The predicted side is computed on links without latency
// and of nearly infinite rate; the measured side counts computing time only. A factor beyond a
// hundred in either direction means that the run was made elsewhere, and is refused.
#include "suite/planning/learned_run.hpp"

#include <fmt/format.h>

#include <map>
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

/// Factors outside are no measurement of the same machine.
constexpr double least_factor = 0.01, most_factor = 100;

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

  /// [rank] seconds of a step in which it computes, without messages of any kind.
  std::vector<double> computing_s() const {
    Cluster wide = cluster_;
    for (Link& link : wide.links) link.curve = LinkCurve(Seconds(0), BytesPerSecond(1e30));
    const ReadyPlan unhindered = ready(wide);
    unhindered.predicted();
    return unhindered.busy_s();
  }

  std::set<int> tensor_parallel_ranks() const {
    std::set<int> ranks;
    for (const PlanStage& stage : result_.plan.stages) {
      for (const StageReplica& replica : stage.replicas) {
        if (replica.ranks.size() < 2) continue;
        for (const RankId rank : replica.ranks) ranks.insert(rank.value());
      }
    }
    return ranks;
  }

  void compare_classes() {
    const std::vector<double> predicted = computing_s();
    const Cluster used = plan_cluster(result_.plan, cluster_);
    const PacingEvent* pacing = journal_.first<PacingEvent>();
    // Emulated devices measure real seconds; modelled ones are that much shorter.
    const double dilation = pacing != nullptr ? pacing->dilation : 1;
    const std::set<int> sharing = tensor_parallel_ranks();
    std::map<std::string, LearnedRun::DeviceTime> classes;
    for (const RankTimeEvent* time : journal_.all<RankTimeEvent>()) {
      const std::size_t rank = time->rank;
      if (rank >= predicted.size() || time->steps == 0) continue;
      // An emulated device's waits for its tensor-parallel neighbours are real, its work is not.
      if (pacing != nullptr && sharing.contains(time->rank)) continue;
      const std::string& name = used.ranks[rank].device_class;
      LearnedRun::DeviceTime& sum = classes[name];
      sum.device_class = name;
      ++sum.ranks;
      sum.predicted_s += predicted[rank];
      sum.measured_s += time->split.compute_s / static_cast<double>(time->steps) / dilation;
    }
    if (classes.empty()) {
      refuse("all emulated ranks share their layers with others",
             "Give a run with tensor-parallel degree 1.");
    }
    for (auto& [name, sum] : classes) {
      sum.predicted_s /= sum.ranks;
      sum.measured_s /= sum.ranks;
      learn(sum);
      result_.classes.push_back(sum);
    }
  }

  void learn(const LearnedRun::DeviceTime& time) {
    const double factor = time.predicted_s / time.measured_s;
    if (!(factor >= least_factor && factor <= most_factor)) {
      throw UserError(fmt::format("{} computes {:.3g} s of a step in {}", time.device_class,
                                  time.measured_s, result_.run_id),
                      fmt::format("{:.3g} s are predicted", time.predicted_s),
                      "Is --cluster the machine that it ran on?");
    }
    const Origin origin{Provenance::probe, "learned from " + result_.run_id};
    const EfficiencyMatrix known = matrix_of(cluster_);
    for (const auto& [key, rate] : known.rates()) {
      if (key.device_class != time.device_class) continue;
      // Other precisions were not exercised by the run.
      if (key.precision != to_string(workload_.precision)) continue;
      result_.matrix.add(key, {OpsPerSecond(rate.rate.value() * factor), origin});
    }
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
