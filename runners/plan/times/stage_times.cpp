// The seconds of every piece of a plan, from the rates of a cluster's classes and its links.
//
// A stage's passes are the sum over its operations, each by a measured entry or by the roofline
// (pass_time()). A replica with tensor parallelism is as slow as its slowest rank, and adds the
// sums that its ranks share. Gradients of a stage are summed by a ring over its replicas; a weight
// that several stages hold (a *tied* table) is summed over all of them, once. Ranks on like devices
// and links take the same, so each distinct replica is timed once: plans have thousands of replicas
// of a few kinds.
#include "runners/plan/times/stage_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "runners/plan/times/class_rates.hpp"
#include "runners/plan/times/plan_links.hpp"

namespace heteroperf {
namespace {

/// Works out all times of one plan.
class TimesMaker {
 public:
  TimesMaker(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
             const Cluster& cluster, Precision precision, OptimizerKind optimizer,
             StageWorkTable& works)
      : graph_(graph),
        staged_(staged),
        plan_(plan),
        cluster_(cluster),
        precision_(precision),
        optimizer_(optimizer),
        rates_(cluster, precision),
        links_(graph, plan, cluster, precision),
        works_(works) {}

  StageTimes run() {
    check();
    for (const StageId stage : staged_.nodes.ids()) {
      auto& replicas = result_.compute.emplace_back();
      for (const StageReplica& replica : plan_.stages[stage].replicas) {
        replicas.push_back(known_compute(stage, replica));
      }
      result_.reduction_s.push_back(reduction(stage));
      result_.optimizer_s.push_back(optimizer(stage));
    }
    for (const StagedGraph::Tied& tied : staged_.tied) add_tied(tied);
    for (const StageEdge& edge : staged_.edges) {
      result_.activation_s.push_back(links_.message_s(edge, edge.nodes));
      result_.gradient_s.push_back(links_.message_s(edge, edge.with_gradient));
    }
    result_.agreement_s = links_.agreement_s();
    return std::move(result_);
  }

 private:
  /// A plan needs ranks that the cluster has, and a rate for each of their classes; all that is
  /// missing is named at once.
  void check() const {
    ProblemList problems;
    const auto ranks = static_cast<int>(cluster_.ranks.size());
    if (plan_.ranks() > ranks) {
      problems.add(fmt::format("the plan names rank {}", plan_.ranks() - 1),
                   fmt::format("the cluster '{}' has ranks 0 to {}", cluster_.name, ranks - 1),
                   "Use a larger cluster or a smaller plan.");
    }
    std::set<std::string> missing;
    for (int rank = 0, end = std::min(ranks, plan_.ranks()); rank < end; ++rank) {
      const std::string& name = cluster_.ranks[rank].device_class;
      if (rates_.rate(name) == nullptr) missing.insert(name);
    }
    for (const std::string& name : missing) {
      problems.add(fmt::format("device class '{}' has no rate for {}", name, to_string(precision_)),
                   "times are operations / rate",
                   "Probe it, or write the rate into the cluster file.");
    }
    problems.throw_if_any();
  }

  const std::string& class_of(RankId rank) const {
    return cluster_.ranks[rank.index()].device_class;
  }

  /// Replicas of one stage on like devices and links take the same.
  const StageTimes::Compute& known_compute(StageId stage, const StageReplica& replica) {
    std::string key = fmt::format("{} {} {}", stage.value(), replica.micro_batch,
                                  links_.ring_s(replica.ranks, 1e9));
    for (const RankId rank : replica.ranks) key += " " + class_of(rank);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    return known_.emplace(key, compute(stage, replica)).first->second;
  }

 public:
  /// The passes of the slowest rank of the replica, with the sums that its ranks share.
  StageTimes::Compute compute(StageId stage, const StageReplica& replica) {
    StageTimes::Compute most;
    const auto degree = static_cast<int>(replica.ranks.size());
    std::vector<std::pair<const StageWork*, const std::string*>> done;
    for (int index = 0; index < degree; ++index) {
      const StageWork& work = works_.of(stage, degree, index);
      const std::string& device = class_of(replica.ranks[index]);
      const bool known = std::any_of(done.begin(), done.end(), [&](const auto& one) {
        return one.first == &work && *one.second == device;
      });
      // A rank with the same work on the same class would take the same.
      if (known) continue;
      done.emplace_back(&work, &device);
      add_slower(passes(stage, work, device, replica.micro_batch), most);
    }
    if (degree > 1) add_tensor_sums(works_.of(stage, degree, 0), replica, most);
    const bool full = plan_.stages[stage].recomputation == Recomputation::full;
    // Full recomputation is a forward pass of its own, before the backward.
    if (full) most.recompute_s = most.forward_s;
    return most;
  }

 private:
  static void add_slower(const StageTimes::Compute& one, StageTimes::Compute& most) {
    most.forward_s = std::max(most.forward_s, one.forward_s);
    most.input_gradient_s = std::max(most.input_gradient_s, one.input_gradient_s);
    most.weight_gradient_s = std::max(most.weight_gradient_s, one.weight_gradient_s);
  }

  StageTimes::Compute passes(StageId stage, const StageWork& work, const std::string& device,
                             std::int64_t micro_batch) const {
    const auto samples = static_cast<double>(micro_batch);
    const bool selective = plan_.stages[stage].recomputation == Recomputation::selective;
    StageTimes::Compute sum;
    for (const FusedWork& one : work.operations) {
      const auto seconds = [&](TrainingPass pass) {
        return pass_time(rates_, device, one, pass, samples).seconds;
      };
      const double forward_s = seconds(TrainingPass::forward);
      sum.forward_s += forward_s;
      sum.input_gradient_s += seconds(TrainingPass::input_gradient);
      sum.weight_gradient_s += seconds(TrainingPass::weight_gradient);
      // Selective recomputation makes attention again within B.
      if (selective && one.attention) sum.input_gradient_s += forward_s;
    }
    return sum;
  }

  /// All-reduces of partial outputs and gradients.
  void add_tensor_sums(const StageWork& work, const StageReplica& replica,
                       StageTimes::Compute& times) const {
    const auto samples = static_cast<double>(replica.micro_batch);
    for (const double bytes : work.forward_sums) {
      times.forward_s += links_.ring_s(replica.ranks, bytes * samples);
    }
    for (const double bytes : work.gradient_sums) {
      times.input_gradient_s += links_.ring_s(replica.ranks, bytes * samples);
    }
  }

  /// Elements of the parameters that the fullest rank of a stage holds; tied tables held elsewhere
  /// too are left to add_tied().
  double parameters(StageId stage) {
    double most = 0;
    for (const StageReplica& replica : plan_.stages[stage].replicas) {
      const auto degree = static_cast<int>(replica.ranks.size());
      for (int index = 0; index < degree; ++index) {
        const TensorShard& shard = works_.shards().of(degree, index);
        double sum = 0;
        for (const NodeId id : staged_.nodes[stage]) {
          if (!is_tied(id)) sum += parameter_elements(shard.graph.node(id));
        }
        most = std::max(most, sum);
      }
    }
    return most;
  }

  bool is_tied(NodeId node) const {
    return std::any_of(staged_.tied.begin(), staged_.tied.end(),
                       [&](const StagedGraph::Tied& tied) { return tied.owner == node; });
  }

  double master_bytes() const { return static_cast<double>(bytes_per_master(precision_)); }

  /// Seconds of the sum of a stage's own gradients over its replicas.
  double reduction(StageId stage) {
    return links_.ring_s(links_.ring_of({stage}), parameters(stage) * master_bytes());
  }

  /// Every holder's stage waits for the sum over all of them.
  void add_tied(const StagedGraph::Tied& tied) {
    const PlanStage& owner = plan_.stages[tied.stages.front()];
    const auto degree = static_cast<double>(owner.replicas.front().ranks.size());
    const double elements = parameter_elements(graph_.node(tied.owner)) / degree;
    const double time = links_.ring_s(links_.ring_of(tied.stages), elements * master_bytes());
    for (const StageId stage : tied.stages) result_.reduction_s[stage] += time;
  }

  /// Seconds of the slowest rank's update; with ZeRO-1 a replica updates its share alone.
  double optimizer(StageId stage) {
    const PlanStage& s = plan_.stages[stage];
    // The stage's own parameters, and its share of every tied table that it holds a copy of.
    double elements = parameters(stage);
    for (const StagedGraph::Tied& tied : staged_.tied) {
      if (std::find(tied.stages.begin(), tied.stages.end(), stage) == tied.stages.end()) continue;
      elements += parameter_elements(graph_.node(tied.owner)) /
                  static_cast<double>(s.replicas.front().ranks.size());
    }
    if (plan_.zero_stage == 1) elements /= static_cast<double>(s.replicas.size());
    double slowest = 0;
    for (const StageReplica& replica : s.replicas) {
      for (const RankId rank : replica.ranks) {
        const double rate = rates_.optimizer_bytes_per_s(class_of(rank), optimizer_);
        slowest = std::max(slowest, optimizer_words * elements * master_bytes() / rate);
      }
    }
    return slowest;
  }

  const ModelGraph& graph_;
  const StagedGraph& staged_;
  const Plan& plan_;
  const Cluster& cluster_;
  Precision precision_;
  OptimizerKind optimizer_;
  ClassRates rates_;
  PlanLinks links_;
  StageWorkTable& works_;
  std::map<std::string, StageTimes::Compute> known_;
  StageTimes result_;
};

}  // namespace

StageTimes stage_times(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
                       const Cluster& cluster, Precision precision, OptimizerKind optimizer) {
  StageWorkTable works(graph, staged, precision);
  return TimesMaker(graph, staged, plan, cluster, precision, optimizer, works).run();
}

StageTimes::Compute replica_times(const ModelGraph& graph, const StagedGraph& staged,
                                  const Plan& plan, StageId stage, const StageReplica& replica,
                                  const Cluster& cluster, Precision precision,
                                  StageWorkTable& works) {
  return TimesMaker(graph, staged, plan, cluster, precision, {}, works).compute(stage, replica);
}

}  // namespace heteroperf
