#include "runners/plan/stage_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <variant>

#include "metrics/error.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "runners/plan/shard_table.hpp"
#include "workloads/graph_counts.hpp"

namespace heteroperf {
namespace {

std::size_t position(NodeId node) { return static_cast<std::size_t>(node.value()); }
std::size_t at_index(int i) { return static_cast<std::size_t>(i); }

template <class Kind>
bool is(const Node& node) {
  return std::holds_alternative<Kind>(node.attributes);
}

/// What efficiency entries call a kind of node.
const char* operation_name(const Node& node) {
  return is<Linear>(node) ? "gemm" : kind_name(node.attributes);
}

/// The product of a shape's numbers ("1024x1024x1024"); 0 where there are none.
double size_of_shape(const std::string& shape) {
  double product = 1;
  bool any = false;
  for (std::size_t i = 0; i < shape.size();) {
    if (shape[i] < '0' || shape[i] > '9') {
      ++i;
      continue;
    }
    double number = 0;
    for (; i < shape.size() && shape[i] >= '0' && shape[i] <= '9'; ++i) {
      number = 10 * number + (shape[i] - '0');
    }
    product *= std::max(1.0, number);
    any = true;
  }
  return any ? product : 0;
}

/// Operations per second of a device class.
class ClassRates {
 public:
  ClassRates(const Cluster& cluster, Precision precision)
      : cluster_(cluster), precision_(to_string(precision)) {}

  /// Null where the class has none for the precision.
  const OpsPerSecond* rate(const std::string& name) const {
    for (const DeviceClass& one : cluster_.classes) {
      if (one.name != name) continue;
      const auto found = one.rates.find(precision_);
      return found == one.rates.end() ? nullptr : &found->second;
    }
    return nullptr;
  }

  /// Of `operations` of one kind: the entry whose shape is nearest in size, else the class's rate.
  double operations_per_s(const std::string& name, const char* operation, double operations) const {
    const Efficiency* best = nullptr;
    double distance = 0;
    for (const Efficiency& entry : cluster_.efficiency) {
      if (entry.device_class != name || entry.precision != precision_) continue;
      if (entry.operation != operation) continue;
      const double size = size_of_shape(entry.shape);
      const double away = size > 0 ? std::abs(std::log(operations / 2 / size)) : 0;
      if (best == nullptr || away < distance) best = &entry, distance = away;
    }
    return best != nullptr ? best->rate.value() : rate(name)->value();
  }

  /// Bytes per second that the optimizer's passes over memory reach; nothing where not measured.
  std::optional<double> memory_bytes_per_s(const std::string& name) const {
    for (const Efficiency& entry : cluster_.efficiency) {
      if (entry.device_class == name && entry.operation == "memory") return entry.rate.value();
    }
    return std::nullopt;
  }

 private:
  const Cluster& cluster_;
  std::string precision_;
};

/// Works out all times of one plan.
class TimesMaker {
 public:
  TimesMaker(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
             const Cluster& cluster, Precision precision, ShardTable& shards)
      : graph_(graph),
        staged_(staged),
        plan_(plan),
        cluster_(cluster),
        precision_(precision),
        rates_(cluster, precision),
        shards_(shards) {}

  StageTimes run() {
    check();
    for (int stage = 0; stage < staged_.stages(); ++stage) {
      auto& replicas = result_.compute.emplace_back();
      for (const StageReplica& replica : plan_.stages[at_index(stage)].replicas) {
        replicas.push_back(known_compute(stage, replica));
      }
      result_.reduction_s.push_back(reduction(stage));
      result_.optimizer_s.push_back(optimizer(stage));
    }
    for (const StagedGraph::Tied& tied : staged_.tied) add_tied(tied);
    for (const StageEdge& edge : staged_.edges) {
      result_.activation_s.push_back(message(edge, edge.nodes));
      result_.gradient_s.push_back(message(edge, edge.with_gradient));
    }
    result_.agreement_s = agreement();
    return std::move(result_);
  }

 private:
  void check() const {
    ProblemList problems;
    const auto ranks = static_cast<int>(cluster_.ranks.size());
    if (plan_.ranks() > ranks) {
      problems.add(fmt::format("the plan names rank {}", plan_.ranks() - 1),
                   fmt::format("the cluster '{}' has ranks 0 to {}", cluster_.name, ranks - 1),
                   "Use a larger cluster or a smaller plan.");
    }
    std::set<std::string> missing;
    for (int rank = 0; rank < std::min(ranks, plan_.ranks()); ++rank) {
      const std::string& name = cluster_.ranks[at_index(rank)].device_class;
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
    return cluster_.ranks[at_index(rank.value())].device_class;
  }

  /// Replicas of one stage on like devices and links take the same.
  const StageTimes::Compute& known_compute(int stage, const StageReplica& replica) {
    std::string key = fmt::format("{} {} {}", stage, replica.micro_batch, ring(replica.ranks, 1e9));
    for (const RankId rank : replica.ranks) key += " " + class_of(rank);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    return known_.emplace(key, compute(stage, replica)).first->second;
  }

 public:
  /// Of the slowest rank of the replica, with the sums that its ranks share.
  StageTimes::Compute compute(int stage, const StageReplica& replica) {
    StageTimes::Compute most;
    const auto degree = static_cast<int>(replica.ranks.size());
    for (int index = 0; index < degree; ++index) {
      const TensorShard& shard = shards_.of(degree, index);
      const StageTimes::Compute one = operations(stage, shard, replica, index);
      most.forward_s = std::max(most.forward_s, one.forward_s);
      most.input_gradient_s = std::max(most.input_gradient_s, one.input_gradient_s);
      most.weight_gradient_s = std::max(most.weight_gradient_s, one.weight_gradient_s);
    }
    if (degree > 1) add_tensor_sums(stage, shards_.of(degree, 0), replica, most);
    const bool full = plan_.stages[at_index(stage)].recomputation == Recomputation::full;
    if (full) most.recompute_s = most.forward_s;
    return most;
  }

 private:
  StageTimes::Compute operations(int stage, const TensorShard& shard, const StageReplica& replica,
                                 int index) const {
    const std::string& device = class_of(replica.ranks[at_index(index)]);
    const auto samples = static_cast<double>(replica.micro_batch);
    const bool selective = plan_.stages[at_index(stage)].recomputation == Recomputation::selective;
    StageTimes::Compute sum;
    for (const NodeId id : staged_.nodes[at_index(stage)]) {
      const StrictOps ops = strict_node_ops(shard.graph, id);
      const double forward = ops.forward.to_double() * samples;
      if (forward == 0) continue;
      const Node& node = shard.graph.node(id);
      const double rate = rates_.operations_per_s(device, operation_name(node), forward);
      sum.forward_s += forward / rate;
      sum.input_gradient_s += ops.input_gradient.to_double() * samples / rate;
      sum.weight_gradient_s += ops.weight_gradient.to_double() * samples / rate;
      if (selective && is<Attention>(node)) sum.input_gradient_s += forward / rate;
    }
    return sum;
  }

  /// All-reduces of partial outputs and gradients, and the two small ones of a cut loss.
  void add_tensor_sums(int stage, const TensorShard& shard, const StageReplica& replica,
                       StageTimes::Compute& times) const {
    const double element = static_cast<double>(bytes_per_element(precision_));
    const auto samples = static_cast<double>(replica.micro_batch);
    const auto sum_of = [&](const Node& node) {
      return ring(replica.ranks,
                  static_cast<double>(element_count(node.output)) * samples * element);
    };
    for (const NodeId id : staged_.nodes[at_index(stage)]) {
      const Node& node = shard.graph.node(id);
      if (shard.output_is_partial[position(id)]) times.forward_s += sum_of(node);
      if (!is<CrossEntropy>(node) || shard.vocabulary[position(id)] == 0) continue;
      const Shape& logits = shard.graph.node(node.inputs[0]).output;
      const double rows =
          samples * static_cast<double>(element_count(logits)) / static_cast<double>(logits.back());
      const double number = static_cast<double>(statistic_bytes(precision_));
      times.forward_s += ring(replica.ranks, rows * number);
      times.forward_s += ring(replica.ranks, 3 * rows * number);
    }
    const std::vector<bool> partial = gradient_is_partial_within(shard, staged_.stage_of, stage);
    for (std::size_t n = 0; n < partial.size(); ++n) {
      const Node& node = shard.graph.nodes()[n];
      if (partial[n] && node.differentiable) times.input_gradient_s += sum_of(node);
    }
  }

  /// Ring all-reduce of n ranks: 2 (n−1)/n · bytes / bandwidth + 2 (n−1) · latency, by the slowest
  /// link of the ring.
  double ring(const std::vector<RankId>& ranks, double bytes) const {
    const std::size_t n = ranks.size();
    if (n < 2) return 0;
    double latency = 0, seconds_per_byte = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const RankId a = ranks[i], b = ranks[(i + 1) % n];
      if (a == b) continue;
      const LinkCurve& link = cluster_.link(a, b);
      latency = std::max(latency, link.latency().value());
      seconds_per_byte = std::max(seconds_per_byte, 1 / link.bandwidth().value());
    }
    const auto count = static_cast<double>(n);
    return 2 * (count - 1) / count * bytes * seconds_per_byte + 2 * (count - 1) * latency;
  }

  /// A rank of each replica, of its own place in the replica, in a ring.
  std::vector<RankId> ring_of(const std::vector<int>& stages) const {
    std::vector<RankId> ranks;
    for (const int stage : stages) {
      for (const StageReplica& replica : plan_.stages[at_index(stage)].replicas) {
        const RankId rank = replica.ranks.front();
        if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
      }
    }
    return ranks;
  }

  /// Elements of the parameters that the fullest rank of a stage holds; tied tables held elsewhere
  /// too are left to add_tied().
  double parameters(int stage) {
    double most = 0;
    for (const StageReplica& replica : plan_.stages[at_index(stage)].replicas) {
      const auto degree = static_cast<int>(replica.ranks.size());
      for (int index = 0; index < degree; ++index) {
        const TensorShard& shard = shards_.of(degree, index);
        double sum = 0;
        for (const NodeId id : staged_.nodes[at_index(stage)]) {
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

  double reduction(int stage) { return ring(ring_of({stage}), parameters(stage) * master_bytes()); }

  /// Every holder's stage waits for the sum over all of them.
  void add_tied(const StagedGraph::Tied& tied) {
    const PlanStage& owner = plan_.stages[at_index(tied.stages.front())];
    const auto degree = static_cast<double>(owner.replicas.front().ranks.size());
    const double elements = parameter_elements(graph_.node(tied.owner)) / degree;
    const double time = ring(ring_of(tied.stages), elements * master_bytes());
    for (const int stage : tied.stages) result_.reduction_s[at_index(stage)] += time;
  }

  /// AdamW reads parameter, gradient and two moments, and writes parameter and moments.
  double optimizer(int stage) {
    constexpr double words = 7;
    const PlanStage& s = plan_.stages[at_index(stage)];
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
        const auto rate = rates_.memory_bytes_per_s(class_of(rank));
        if (rate) slowest = std::max(slowest, words * elements * master_bytes() / *rate);
      }
    }
    return slowest;
  }

  /// The largest message between two replicas of the edge's stages, over the slowest link.
  double message(const StageEdge& edge, const std::vector<NodeId>& nodes) const {
    if (nodes.empty()) return 0;
    double slowest = 0;
    for (const int direction : {0, 1}) {
      for_each_pair(edge, direction,
                    [&](const StageReplica& from, const StageReplica& to, std::int64_t samples) {
                      const Bytes bytes(message_bytes(graph_, nodes, samples, precision_,
                                                      plan_.wire(edge.from, edge.to)));
                      for (const RankId a : from.ranks) {
                        for (const RankId b : to.ranks) {
                          if (a == b) continue;
                          slowest = std::max(slowest, cluster_.link(a, b).time(bytes).value());
                        }
                      }
                    });
    }
    return slowest;
  }

  /// Calls visit(from, to, samples that both have).
  template <class Visit>
  void for_each_pair(const StageEdge& edge, int direction, Visit visit) const {
    std::int64_t from_first = 0;
    for (const StageReplica& from : plan_.stages[at_index(edge.from)].replicas) {
      if (from.direction != direction) continue;
      std::int64_t to_first = 0;
      for (const StageReplica& to : plan_.stages[at_index(edge.to)].replicas) {
        if (to.direction != direction) continue;
        const std::int64_t first = std::max(from_first, to_first);
        const std::int64_t last =
            std::min(from_first + from.micro_batch, to_first + to.micro_batch);
        if (last > first) visit(from, to, last - first);
        to_first += to.micro_batch;
      }
      from_first += from.micro_batch;
    }
  }

  /// Two float64 numbers, in as many rounds as a tree has levels.
  double agreement() const {
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

  /// Ranks between which every link of the plan's ranks shows: two of each cluster's, unless pairs
  /// have links of their own.
  std::vector<RankId> distinct_ranks() const {
    const bool pairs = std::any_of(cluster_.links.begin(), cluster_.links.end(),
                                   [](const Link& link) { return link.ranks.has_value(); });
    std::map<std::string, int> seen;
    std::vector<RankId> ranks;
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      if (pairs || ++seen[cluster_.ranks[at_index(rank)].cluster] <= 2) ranks.emplace_back(rank);
    }
    return ranks;
  }

  const ModelGraph& graph_;
  const StagedGraph& staged_;
  const Plan& plan_;
  const Cluster& cluster_;
  Precision precision_;
  ClassRates rates_;
  ShardTable& shards_;
  std::map<std::string, StageTimes::Compute> known_;
  StageTimes result_;
};

}  // namespace

StageTimes::Compute StageTimes::slowest(int stage) const {
  Compute most;
  for (const Compute& one : compute[at_index(stage)]) {
    most.forward_s = std::max(most.forward_s, one.forward_s);
    most.input_gradient_s = std::max(most.input_gradient_s, one.input_gradient_s);
    most.weight_gradient_s = std::max(most.weight_gradient_s, one.weight_gradient_s);
    most.recompute_s = std::max(most.recompute_s, one.recompute_s);
  }
  return most;
}

StageTimes stage_times(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
                       const Cluster& cluster, Precision precision) {
  ShardTable shards(graph);
  return TimesMaker(graph, staged, plan, cluster, precision, shards).run();
}

StageTimes::Compute replica_times(const ModelGraph& graph, const StagedGraph& staged,
                                  const Plan& plan, int stage, const StageReplica& replica,
                                  const Cluster& cluster, Precision precision, ShardTable& shards) {
  return TimesMaker(graph, staged, plan, cluster, precision, shards).compute(stage, replica);
}

}  // namespace heteroperf
