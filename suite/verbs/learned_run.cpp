#include "suite/verbs/learned_run.hpp"

#include <fmt/format.h>

#include <map>
#include <set>

#include "metrics/base/error.hpp"
#include "results/run_folder.hpp"
#include "runners/plan/plan_check.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/plan_json.hpp"
#include "runners/plan/prediction.hpp"
#include "suite/verbs/measured_plan.hpp"
#include "suite/verbs/plan_simulation.hpp"

namespace heteroperf {
namespace {

/// Factors outside are no measurement of the same machine.
constexpr double least_factor = 0.01, most_factor = 100;

class RunLearner {
 public:
  RunLearner(const std::filesystem::path& run, const Cluster& cluster)
      : files_{open_run_folder(run)}, cluster_(cluster) {}

  LearnedRun run() {
    read();
    result_.predicted_step_s = step_s(cluster_);
    compare_classes();
    Cluster relearned = cluster_;
    apply(result_.matrix, relearned);
    result_.relearned_step_s = step_s(relearned);
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const char* why) const {
    throw UserError(fmt::format("{} has nothing to learn from", files_.folder.string()), why,
                    "Give a finished run of a plan.");
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
    cluster_ = known_better(std::move(cluster_), result_.plan);
    PlanSimulationRequest request;
    request.path = plan_file;
    request.cluster = "given";
    workload_ = simulated_workload(result_.plan, request);
    check_plan(result_.plan, workload_.graph, plan_cluster(result_.plan, cluster_),
               workload_.precision, workload_.recipe.kind);
  }

  StageTimes times(const Cluster& cluster) const {
    const StagedGraph staged = cut_graph(workload_.graph, result_.plan);
    return stage_times(workload_.graph, staged, result_.plan, plan_cluster(result_.plan, cluster),
                       workload_.precision, workload_.recipe.kind);
  }

  double step_s(const Cluster& cluster) const {
    const StagedGraph staged = cut_graph(workload_.graph, result_.plan);
    return predict(workload_.graph, staged, result_.plan, times(cluster), workload_.precision,
                   workload_.recipe.kind)
        .step_time_s;
  }

  /// By rank: seconds of a step in which it computes, without messages of any kind.
  std::map<int, double> computing_s() const {
    Cluster wide = cluster_;
    for (Link& link : wide.links) link.curve = LinkCurve(Seconds(0), BytesPerSecond(1e30));
    const StageTimes all = times(wide);
    std::map<int, double> result;
    for (std::size_t s = 0; s < result_.plan.stages.size(); ++s) {
      const auto& replicas = result_.plan.stages[s].replicas;
      std::set<int> directions;
      for (const StageReplica& replica : replicas) directions.insert(replica.direction);
      const double micro_batches =
          static_cast<double>(result_.plan.micro_batches) / static_cast<double>(directions.size());
      for (std::size_t i = 0; i < replicas.size(); ++i) {
        const StageTimes::Compute& one = all.compute[s][i];
        const double pass =
            one.forward_s + one.input_gradient_s + one.weight_gradient_s + one.recompute_s;
        for (const RankId rank : replicas[i].ranks) {
          result[rank.value()] += pass * micro_batches + all.optimizer_s[s];
        }
      }
    }
    return result;
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
    const std::map<int, double> predicted = computing_s();
    const Cluster used = plan_cluster(result_.plan, cluster_);
    const PacingEvent* pacing = journal_.first<PacingEvent>();
    const double dilation = pacing != nullptr ? pacing->dilation : 1;
    const std::set<int> sharing = tensor_parallel_ranks();
    std::map<std::string, LearnedRun::DeviceTime> classes;
    for (const RankTimeEvent* time : journal_.all<RankTimeEvent>()) {
      const auto own = predicted.find(time->rank);
      if (own == predicted.end() || time->steps == 0) continue;
      // An emulated device's waits for its tensor-parallel neighbours are real, its work is not.
      if (pacing != nullptr && sharing.contains(time->rank)) continue;
      const std::string& name = used.ranks[static_cast<std::size_t>(time->rank)].device_class;
      LearnedRun::DeviceTime& sum = classes[name];
      sum.device_class = name;
      ++sum.ranks;
      sum.predicted_s += own->second;
      sum.measured_s += time->split.compute_s / static_cast<double>(time->steps) / dilation;
    }
    if (classes.empty()) {
      throw UserError(fmt::format("{} has nothing to learn from", files_.folder.string()),
                      "all emulated ranks share their layers with others",
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
