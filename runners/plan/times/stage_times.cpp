// The seconds of every piece of a plan, from the rates of a cluster's classes and its links.
//
// A stage's passes are the sum over its operations, each by a measured entry or by the roofline
// (pass_time()). A replica with tensor parallelism is as slow as its slowest rank, and adds the
// sums that its ranks share. Gradients of a stage are summed by a ring over its replicas; a weight
// that several stages hold (a *tied* table) is summed over all of them, once. Ranks on like devices
// and links take the same, so each distinct replica is timed once: plans have thousands of replicas
// of a few kinds.
//
// Replicas of both ends of an edge split the same micro-batch in their order, so a sender and a
// receiver share the overlap of their intervals of samples. The slowest pair decides, over the
// slowest pair of their ranks. Sums are rings (Patarasuk and Yuan 2009), as slow as the slowest
// link among neighbours. Links are given by labels of clusters or by pairs of ranks; where only
// labels count, two ranks of each label show every link there is, which saves the square of
// thousands of ranks.
#include "runners/plan/times/stage_times.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/times/class_rates.hpp"

namespace heteroperf {
namespace {

/// Works out all times of one plan.
class TimesMaker {
 public:
  TimesMaker(const TrainingTask& task, const StagedGraph& staged, const Plan& plan,
             const Cluster& cluster, StageWorkTable& works)
      : task_(task),
        staged_(staged),
        plan_(plan),
        cluster_(cluster),
        rates_(cluster, task.precision),
        works_(works) {}

  StageTimes run() {
    check();
    for (const StageId stage : staged_.nodes.ids()) {
      auto& replicas = result_.compute.emplace_back();
      for (const ReplicaId replica : plan_.stages[stage].replicas.ids()) {
        sharers_ = sharers(stage, replica);
        replicas.push_back(known_compute(stage, plan_.stages[stage].replicas[replica]));
      }
      result_.reduction_s.push_back(reduction(stage));
      result_.optimizer_s.push_back(optimizer(stage));
    }
    for (const StagedGraph::Tied& tied : staged_.tied) add_tied(tied);
    for (const StageEdge& edge : staged_.edges) {
      result_.activation_s.push_back(message_s(edge, edge.nodes));
      result_.gradient_s.push_back(message_s(edge, edge.with_gradient));
    }
    result_.agreement_s = agreement_s();
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
    note_missing_rates(cluster_, plan_.ranks(), task_.precision, problems);
    problems.throw_if_any();
  }

  const std::string& class_of(RankId rank) const {
    return cluster_.ranks[rank.index()].device_class;
  }

  /// Replicas of one stage on like devices and links take the same.
  const StageTimes::Compute& known_compute(StageId stage, const StageReplica& replica) {
    std::string key =
        fmt::format("{} {} {}", stage.value(), replica.micro_batch, ring_s(replica.ranks, 1e9));
    for (const RankId rank : replica.ranks) key += " " + class_of(rank);
    if (!replica.part.whole()) {
      key += fmt::format(" {} {}", replica.part.parts, gather_s(sharers_, 1e9));
    }
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
      const StageWork& work = works_.of(stage, degree, index, replica.part);
      const std::string& device = class_of(replica.ranks[index]);
      const bool known = std::ranges::any_of(
          done, [&](const auto& pair) { return pair.first == &work && *pair.second == device; });
      // A rank with the same work on the same class would take the same.
      if (known) continue;
      done.emplace_back(&work, &device);
      most.raise_to(passes(stage, work, device, replica.micro_batch));
    }
    const StageWork& first = works_.of(stage, degree, 0, replica.part);
    add_sums(first.tensor, replica.ranks, replica.micro_batch, most);
    add_sums(first.context, sharers_, replica.micro_batch, most);
    const bool full = plan_.stages[stage].recomputation == Recomputation::full;
    // Full recomputation is a forward pass of its own, before the backward.
    if (full) most.recompute_s = most.forward_s;
    return most;
  }

 private:
  StageTimes::Compute passes(StageId stage, const StageWork& work, const std::string& device,
                             std::int64_t micro_batch) const {
    const auto samples = static_cast<double>(micro_batch);
    const bool selective = plan_.stages[stage].recomputation == Recomputation::selective;
    StageTimes::Compute sum;
    for (const FusedWork& fused_work : work.operations) {
      const auto seconds = [&](TrainingPass pass) {
        return pass_time(rates_, device, fused_work, pass, samples).seconds;
      };
      const double forward_s = seconds(TrainingPass::forward);
      const double input_gradient_s = seconds(TrainingPass::input_gradient);
      sum.forward_s += forward_s;
      sum.input_gradient_s += input_gradient_s;
      sum.weight_gradient_s += seconds(TrainingPass::weight_gradient);
      // Selective recomputation makes attention again within B.
      const bool recomputes = selective && fused_work.attention;
      if (recomputes) sum.input_gradient_s += forward_s;
      if (fused_work.passed_round > 0 && sharers_.size() > 1) {
        add_ring(fused_work, samples, forward_s, input_gradient_s, recomputes, sum);
      }
    }
    return sum;
  }

  void add_sums(const StageWork::Sums& sums, const std::vector<RankId>& ranks,
                std::int64_t micro_batch, StageTimes::Compute& times) const {
    const auto samples = static_cast<double>(micro_batch);
    for (const double bytes : sums.forward) times.forward_s += ring_s(ranks, bytes * samples);
    for (const double bytes : sums.gradient) {
      times.input_gradient_s += ring_s(ranks, bytes * samples);
    }
  }

  /// Seconds by which a pass waits for what goes round `ranks` ranks: `messages_s` take as long,
  /// and the pass works on all parts but one, of `pass_s` in all, meanwhile.
  static double uncovered_s(double messages_s, double pass_s, double ranks) {
    return std::max(0.0, messages_s - (ranks - 1) / ranks * pass_s);
  }

  /// Keys and values of an attention go round once per forward pass and once per backward pass,
  /// there with the sums of their gradients behind them, in float32 or wider: of these, nothing
  /// covers the last message.
  void add_ring(const FusedWork& attention, double samples, double forward_s, double backward_s,
                bool recomputes, StageTimes::Compute& times) const {
    const double wider = static_cast<double>(statistic_bytes(task_.precision)) /
                         static_cast<double>(bytes_per_element(task_.precision));
    const auto ranks = static_cast<double>(sharers_.size());
    const double keys_s = gather_s(sharers_, attention.passed_round * samples);
    const double sums_s = gather_s(sharers_, wider * attention.passed_round * samples);
    const double last_s = sums_s / (ranks - 1);
    const double waits_s = uncovered_s(keys_s, forward_s, ranks);
    times.forward_s += waits_s;
    times.input_gradient_s += uncovered_s(keys_s + sums_s - last_s, backward_s, ranks) + last_s;
    if (recomputes) times.input_gradient_s += waits_s;
  }

  /// The first ranks of the replicas with the parts of this one's samples.
  std::vector<RankId> sharers(StageId stage, ReplicaId replica) const {
    const auto& replicas = plan_.stages[stage].replicas;
    const SequencePart& part = replicas[replica].part;
    std::vector<RankId> ranks;
    for (int i = 0; i < part.parts && part.parts > 1; ++i) {
      ranks.push_back(replicas[replica + (i - part.index)].ranks.front());
    }
    return ranks;
  }

  /// Elements in training that the fullest rank of a stage holds; tied tables held elsewhere
  /// too are left to add_tied().
  double parameters(StageId stage) {
    double most = 0;
    for (const StageReplica& replica : plan_.stages[stage].replicas) {
      const auto degree = static_cast<int>(replica.ranks.size());
      for (int index = 0; index < degree; ++index) {
        const TensorShard& shard = works_.shards().of(degree, index);
        double sum = 0;
        for (const NodeId id : staged_.nodes[stage]) {
          if (!is_tied(id)) sum += trained_elements(shard.graph.node(id));
        }
        most = std::max(most, sum);
      }
    }
    return most;
  }

  bool is_tied(NodeId node) const {
    return std::ranges::find(staged_.tied, node, &StagedGraph::Tied::owner) != staged_.tied.end();
  }

  double master_bytes() const { return static_cast<double>(bytes_per_master(task_.precision)); }

  /// Seconds of the sum of a stage's own gradients over its replicas.
  double reduction(StageId stage) {
    return ring_s(ring_of({stage}), parameters(stage) * master_bytes());
  }

  /// Every holder's stage waits for the sum over all of them.
  void add_tied(const StagedGraph::Tied& tied) {
    const PlanStage& owner = plan_.stages[tied.stages.front()];
    const auto degree = static_cast<double>(owner.replicas.front().ranks.size());
    const double elements = trained_elements(task_.graph.node(tied.owner)) / degree;
    const double time = ring_s(ring_of(tied.stages), elements * master_bytes());
    for (const StageId stage : tied.stages) result_.reduction_s[stage] += time;
  }

  /// Seconds of the slowest rank's update; with ZeRO-1 a replica updates its share alone.
  double optimizer(StageId stage) {
    const PlanStage& s = plan_.stages[stage];
    // The stage's own parameters, and its share of every tied table that it holds a copy of.
    double elements = parameters(stage);
    for (const StagedGraph::Tied& tied : staged_.tied) {
      if (std::ranges::find(tied.stages, stage) == tied.stages.end()) continue;
      elements += trained_elements(task_.graph.node(tied.owner)) /
                  static_cast<double>(s.replicas.front().ranks.size());
    }
    if (plan_.zero_stage == 1) elements /= static_cast<double>(s.replicas.size());
    double slowest = 0;
    for (const StageReplica& replica : s.replicas) {
      for (const RankId rank : replica.ranks) {
        const double rate = rates_.optimizer_bytes_per_s(class_of(rank), task_.optimizer);
        slowest = std::max(slowest, optimizer_words * elements * master_bytes() / rate);
      }
    }
    return slowest;
  }

  /// Ring all-reduce of n ranks: 2 (n−1)/n · bytes / bandwidth + 2 (n−1) · latency, by the slowest
  /// link of the ring.
  double ring_s(const std::vector<RankId>& ranks, double bytes) const {
    return 2 * gather_s(ranks, bytes);
  }

  /// One half of it: a ring all-gather of `bytes` in all, or a reduce-scatter.
  double gather_s(const std::vector<RankId>& ranks, double bytes) const {
    const std::size_t n = ranks.size();
    if (n < 2) return 0;
    double latency = 0, seconds_per_byte = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const RankId a = ranks[i], b = ranks[(i + 1) % n];
      // A rank that is its own neighbour needs no link.
      if (a == b) continue;
      const LinkCurve& link = cluster_.link(a, b);
      latency = std::max(latency, link.latency().value());
      seconds_per_byte = std::max(seconds_per_byte, 1 / link.bandwidth().value());
    }
    const auto count = static_cast<double>(n);
    return (count - 1) / count * bytes * seconds_per_byte + (count - 1) * latency;
  }

  /// A rank of each replica of these stages, in a ring.
  std::vector<RankId> ring_of(const std::vector<StageId>& stages) const {
    std::vector<RankId> ranks;
    std::set<RankId> seen;
    for (const StageId stage : stages) {
      for (const StageReplica& replica : plan_.stages[stage].replicas) {
        const RankId rank = replica.ranks.front();
        if (seen.insert(rank).second) ranks.push_back(rank);
      }
    }
    return ranks;
  }

  /// The message between two replicas, one of which may have a part of what the other has whole.
  Bytes bytes_between(const StageEdge& edge, const std::vector<NodeId>& nodes,
                      const StageReplica& from, const StageReplica& to,
                      std::int64_t samples) const {
    const auto bytes_of = [&](const SequencePart& part) {
      const ModelGraph& local = works_.shards().of(1, 0, part.first_part()).graph;
      return message_bytes(local, nodes, usual_extent(local, samples), task_.precision,
                           plan_.wire(edge.from, edge.to));
    };
    return Bytes(std::min(bytes_of(from.part), bytes_of(to.part)));
  }

  /// The largest message between two replicas of the edge's stages, over the slowest link.
  double message_s(const StageEdge& edge, const std::vector<NodeId>& nodes) const {
    if (nodes.empty()) return 0;
    double slowest = 0;
    for (const int direction : {0, 1}) {
      for_each_pair(edge, direction,
                    [&](const StageReplica& from, const StageReplica& to, std::int64_t samples) {
                      const Bytes bytes = bytes_between(edge, nodes, from, to, samples);
                      for (const RankId a : from.ranks) {
                        for (const RankId b : to.ranks) {
                          // Nothing travels within a rank.
                          if (a == b) continue;
                          slowest = std::max(slowest, cluster_.link(a, b).time(bytes).value());
                        }
                      }
                    });
    }
    return slowest;
  }

  /// Two float64 numbers, in as many rounds as a tree has levels.
  /// Seconds; 0 for a plan of one rank.
  double agreement_s() const {
    const std::vector<RankId> ranks = distinct_ranks();
    double slowest = 0;
    for (std::size_t a = 0; a < ranks.size(); ++a) {
      for (std::size_t b = a + 1; b < ranks.size(); ++b) {
        const Seconds time = cluster_.link(ranks[a], ranks[b]).time(Bytes(16));
        slowest = std::max(slowest, time.value());
      }
    }
    return plan_.ranks() > 1 ? slowest * std::ceil(std::log2(plan_.ranks())) : 0;
  }

  /// Calls visit(from, to, samples that both have).
  template <class Visit>
  void for_each_pair(const StageEdge& edge, int direction, Visit visit) const {
    const auto of_direction = [&](StageId stage) {
      std::vector<const StageReplica*> replicas;
      for (const StageReplica& stage_replica : plan_.stages[stage].replicas) {
        if (stage_replica.direction == direction) replicas.push_back(&stage_replica);
      }
      return replicas;
    };
    const std::vector<const StageReplica*> senders = of_direction(edge.from),
                                           receivers = of_direction(edge.to);
    std::size_t s = 0, r = 0;
    std::int64_t s_first = 0, r_first = 0;
    // Replicas with the parts of one sequence take the same samples, of which each pair has less.
    const auto parts_of = [](const std::vector<const StageReplica*>& side, std::size_t i) {
      return std::size_t{0} + side[i]->part.parts;
    };
    while (s < senders.size() && r < receivers.size()) {
      const std::int64_t s_end = s_first + senders[s]->micro_batch,
                         r_end = r_first + receivers[r]->micro_batch;
      const std::int64_t both = std::min(s_end, r_end) - std::max(s_first, r_first);
      if (both > 0) {
        for (std::size_t i = 0; i < parts_of(senders, s); ++i) {
          for (std::size_t j = 0; j < parts_of(receivers, r); ++j) {
            // Each of equally many parts goes to its like.
            const SequencePart &from = senders[s]->part, &to = receivers[r]->part;
            if (i != j && from.parts == to.parts && from.order == to.order) continue;
            visit(*senders[s + i], *receivers[r + j], both);
          }
        }
      }
      const bool sender_ends = s_end <= r_end, receiver_ends = r_end <= s_end;
      if (sender_ends) s += parts_of(senders, s), s_first = s_end;
      if (receiver_ends) r += parts_of(receivers, r), r_first = r_end;
    }
  }

  /// Ranks between which every link of the plan's ranks shows: two of each cluster's, unless pairs
  /// have links of their own.
  std::vector<RankId> distinct_ranks() const {
    const bool pairs = std::ranges::any_of(cluster_.links,
                                           [](const Link& link) { return link.ranks.has_value(); });
    std::map<std::string, int> seen;
    std::vector<RankId> ranks;
    for (int rank = 0, end = plan_.ranks(); rank < end; ++rank) {
      if (pairs || ++seen[cluster_.ranks[rank].cluster] <= 2) ranks.emplace_back(rank);
    }
    return ranks;
  }

  const TrainingTask& task_;
  const StagedGraph& staged_;
  const Plan& plan_;
  const Cluster& cluster_;
  ClassRates rates_;
  StageWorkTable& works_;
  std::map<std::string, StageTimes::Compute> known_;
  std::vector<RankId> sharers_;  ///< with the replica at hand; none: a draft's
  StageTimes result_;
};

}  // namespace

void StageTimes::Compute::raise_to(const Compute& other) {
  forward_s = std::max(forward_s, other.forward_s);
  recompute_s = std::max(recompute_s, other.recompute_s);
  input_gradient_s = std::max(input_gradient_s, other.input_gradient_s);
  weight_gradient_s = std::max(weight_gradient_s, other.weight_gradient_s);
}

StageTimes stage_times(const TrainingTask& task, const StagedGraph& staged, const Plan& plan,
                       const Cluster& cluster) {
  StageWorkTable works(task.graph, staged, task.precision);
  return TimesMaker(task, staged, plan, cluster, works).run();
}

StageTimes::Compute replica_times(const TrainingTask& task, const StagedGraph& staged,
                                  const Plan& plan, StageId stage, const StageReplica& replica,
                                  const Cluster& cluster, StageWorkTable& works) {
  return TimesMaker(task, staged, plan, cluster, works).compute(stage, replica);
}

}  // namespace heteroperf
