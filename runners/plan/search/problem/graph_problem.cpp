// The tables of a PlanningProblem, worked out for a model on a machine.
//
// The planner knows neither graphs nor clusters: it sees layers, pools and tables. A *layer* is
// made a stage of its own, and the functions that time and measure a plan's stages
// (replica_times(), stage_memory()) are asked about it, so that the tables follow the same rules as
// the prediction. Layers that are alike (layer_kinds()) are asked about once. A *pool* is the set
// of ranks of one class under one label, which makes a cluster of thousands of ranks a few columns.
//
// Times are asked for every micro-batch, since rates depend on shapes. Memory is linear in the
// samples, so two micro-batches are enough. Between two pools the slowest link counts, for the
// planner does not yet know which of their devices will talk.
//
// A stage sends its outputs to the next one, so a good place to cut is one that a single tensor
// crosses, and a narrow one. The graph's order is walked once while the tensors that are still
// needed are kept in a list; where one is left and it has a gradient, the place counts with the
// tensor's elements as its width. Places much wider than the median are dropped, such as the one
// between a language model's head and its loss: a stage that ends there would send several times as
// much.
//
// Two layers are alike when their nodes agree one by one in kind, shapes and inputs, where an input
// is either the same place within the layer or any tensor of the same shape before it. Most layers
// of a deep model are alike, which is why timing each kind once makes planning cheap.
#include "runners/plan/search/problem/graph_problem.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/memory/stage_memory.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/times/stage_times.hpp"

namespace heteroperf {
namespace {

/// Layers end at no place that is wider than this times the median one.
constexpr double widest_cut = 4;

struct LayerNodes {
  std::size_t first = 0, end = 0;
};

bool alike(const ModelGraph& graph, LayerNodes a, LayerNodes b) {
  if (a.end - a.first != b.end - b.first) return false;
  for (std::size_t i = 0; i < a.end - a.first; ++i) {
    const Node &x = graph.nodes()[a.first + i], &y = graph.nodes()[b.first + i];
    if (x.attributes != y.attributes || x.output != y.output || x.items != y.items ||
        x.inputs.size() != y.inputs.size() || x.differentiable != y.differentiable) {
      return false;
    }
    for (std::size_t k = 0; k < x.inputs.size(); ++k) {
      const Node &from_x = graph.node(x.inputs[k]), &from_y = graph.node(y.inputs[k]);
      const bool same_place = x.inputs[k].index() - a.first == y.inputs[k].index() - b.first;
      const bool both_outside = x.inputs[k].index() < a.first && y.inputs[k].index() < b.first;
      if (!(same_place || both_outside) || from_x.output != from_y.output ||
          from_x.items != from_y.items || from_x.differentiable != from_y.differentiable) {
        return false;
      }
    }
  }
  return true;
}

/// Ends of the layers of a graph, in nodes: every place of its order that one tensor, which is
/// frozen or has a gradient, crosses alone, but for those of or to other branches, no wider than
/// `widest_cut` times the median such place's in the branch. The last end is the number of nodes.
/// The list is ascending.
std::vector<std::size_t> layer_ends(const ModelGraph& graph) {
  const std::vector<std::vector<NodeId>> crossing = crossing_tensors(graph);
  const std::vector<std::size_t> own_ends = ends_of_own_use(graph);
  std::vector<std::size_t> ends;
  std::vector<double> widths;
  std::map<std::string, std::vector<double>> of_branch;
  const auto branch_before = [&](std::size_t end) { return graph.nodes()[end - 1].branch; };
  for (std::size_t end = 0; end < crossing.size(); ++end) {
    double width = 0;
    int own = 0, to_others = 0;
    bool has_stages = true;
    for (const NodeId id : crossing[end]) {
      const Node& node = graph.node(id);
      width += static_cast<double>(element_count(node.output)) * usual_items(graph, node);
      if (node.branch == branch_before(end)) ++(own_ends[id.index()] > end ? own : to_others);
      has_stages = has_stages && (node.differentiable || is_frozen(node));
    }
    const bool alone = own == 1 || (own == 0 && to_others == 1);
    if (!alone || !has_stages) continue;
    ends.push_back(end);
    widths.push_back(width);
    of_branch[branch_before(end)].push_back(width);
  }
  for (auto& [branch, sorted] : of_branch) std::ranges::sort(sorted);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const std::vector<double>& sorted = of_branch.at(branch_before(ends[i]));
    const double limit = widest_cut * sorted[sorted.size() / 2];
    if (widths[i] <= limit) ends[kept++] = ends[i];
  }
  ends.resize(kept);
  ends.push_back(graph.nodes().size());
  return ends;
}

/// Equal numbers for layers of equal nodes with equal inputs: they cost the same.
/// The result has a number for each layer, from 0 in the order of their first appearance.
std::vector<int> layer_kinds(const ModelGraph& graph, const std::vector<std::size_t>& ends) {
  std::vector<int> kinds;
  std::vector<LayerNodes> known;
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    const LayerNodes layer{first, end};
    const auto same = std::ranges::find_if(
        known, [&](LayerNodes layer_nodes) { return alike(graph, layer, layer_nodes); });
    kinds.push_back(static_cast<int>(same - known.begin()));
    if (same == known.end()) known.push_back(layer);
    first = end;
  }
  return kinds;
}

/// Ranks of one class under one label, node by node.
struct PoolRanks {
  std::string device_class, label;
  std::vector<std::vector<RankId>> nodes;
  std::vector<RankId> all() const {
    std::vector<RankId> ranks;
    for (const auto& node : nodes) ranks.insert(ranks.end(), node.begin(), node.end());
    return ranks;
  }
};

/// Fastest class first, then by name; nodes by host name. Ranks without a host are on one node.
std::vector<PoolRanks> pools_of(const Cluster& cluster, Precision precision) {
  std::map<std::pair<std::string, std::string>, std::map<std::string, std::vector<RankId>>>
      ranks_by_pool;
  for (std::size_t r = 0; r < cluster.ranks.size(); ++r) {
    const RankPlace& place = cluster.ranks[r];
    ranks_by_pool[{place.device_class, place.cluster}][place.host].emplace_back(
        static_cast<std::int32_t>(r));
  }
  std::vector<PoolRanks> pools;
  for (auto& [key, hosts] : ranks_by_pool) {
    PoolRanks& pool = pools.emplace_back(PoolRanks{key.first, key.second, {}});
    for (auto& [host, ranks] : hosts) pool.nodes.push_back(std::move(ranks));
  }
  const auto rate = [&](const PoolRanks& pool) {
    const auto& rates = class_of(cluster, pool.device_class).rates;
    const auto stated = rates.find(to_string(precision));
    return stated == rates.end() ? 0 : stated->second.value();
  };
  std::ranges::stable_sort(pools, std::ranges::greater{}, rate);
  return pools;
}

void check_rates(const Cluster& cluster, Precision precision) {
  ProblemList problems;
  if (cluster.ranks.empty()) {
    problems.add(fmt::format("the cluster '{}' has no devices", cluster.name), "",
                 "Describe at least one rank.");
  }
  note_missing_rates(cluster, cluster.ranks.size(), precision, problems);
  problems.throw_if_any();
}

/// Fills the tables of one problem.
class ProblemMaker {
 public:
  ProblemMaker(const ModelGraph& graph, const Cluster& cluster, const PlanningRequest& request,
               const std::vector<PoolRanks>& pools, const std::vector<std::size_t>& ends)
      : graph_(graph),
        cluster_(cluster),
        request_(request),
        pools_(pools),
        kinds_(layer_kinds(graph, ends)),
        plan_(layer_plan(ends)),
        staged_(cut_graph(graph, plan_)),
        works_(graph, staged_, request.precision) {}

  PlanningProblem run() {
    result_.layers = static_cast<int>(kinds_.size());
    result_.batch = request_.batch;
    result_.most_samples =
        std::min(request_.most_samples, std::max<std::int64_t>(1, request_.batch));
    set_degrees();
    for (const PoolRanks& pool : pools_) add_pool(pool);
    set_memory();
    for (const int degree : result_.degrees) add_parameters(degree);
    set_cuts();
    set_links();
    return std::move(result_);
  }

 private:
  /// A stage per layer.
  Plan layer_plan(const std::vector<std::size_t>& ends) const {
    Plan plan;
    std::size_t node = 0;
    for (const std::size_t end : ends) {
      PlanStage& stage = plan.stages.emplace_back();
      for (; node < end; ++node) stage.nodes.push_back(graph_.nodes()[node].name);
      stage.replicas.push_back({{RankId(0)}, 1, "", 0});
    }
    return plan;
  }

  void set_degrees() {
    std::size_t widest = 1;
    for (const PoolRanks& pool : pools_) {
      for (const auto& node : pool.nodes) widest = std::max(widest, node.size());
    }
    const int most = std::min(request_.most_degree, static_cast<int>(widest));
    for (int degree = 1; degree <= most; ++degree) {
      if (degree == 1 || can_share(degree)) result_.degrees.push_back(degree);
    }
  }

  /// True when the heads divide and the model can be cut for the degree at all.
  bool can_share(int degree) {
    for (const Node& node : graph_.nodes()) {
      const auto attention = attention_heads(node.attributes);
      if (attention && !attention->divide_by(degree)) return false;
    }
    ProblemList problems;
    check_tensor_degree(graph_, degree, problems);
    return problems.empty();
  }

  void add_pool(const PoolRanks& ranks) {
    DevicePool& pool = result_.pools.emplace_back();
    const DeviceClass& device = class_of(cluster_, ranks.device_class);
    pool.device_class = ranks.device_class;
    pool.name = ranks.device_class;
    for (const PoolRanks& pool_ranks : pools_) {
      const bool shared = &pool_ranks != &ranks && pool_ranks.device_class == ranks.device_class;
      if (shared) pool.name = fmt::format("{} of {}", ranks.device_class, ranks.label);
    }
    for (const auto& node : ranks.nodes) {
      pool.devices += static_cast<int>(node.size());
      pool.devices_per_node = std::max(pool.devices_per_node, static_cast<int>(node.size()));
    }
    pool.memory_bytes = static_cast<double>(device.memory.value());
    pool.optimizer_rate = ClassRates(cluster_, request_.precision)
                              .optimizer_bytes_per_s(ranks.device_class, request_.optimizer);
    for (const int degree : result_.degrees) pool.times.push_back(times(ranks, degree));
  }

  /// [micro-batch − 1][layer]; lists are empty where no node holds so many ranks.
  std::vector<std::vector<LayerTimes>> times(const PoolRanks& ranks, int degree) {
    std::vector<std::vector<LayerTimes>> result(result_.most_samples);
    // Groups stay within a node, and the largest node holds the largest groups.
    const auto node =
        std::ranges::max_element(ranks.nodes, [](auto& a, auto& b) { return a.size() < b.size(); });
    if (static_cast<int>(node->size()) < degree) return result;
    StageReplica replica;
    // The ranks of a pool are alike, so any of the node's stand for all.
    replica.ranks.assign(node->begin(), node->begin() + degree);
    for (std::int64_t samples = 1; samples <= result_.most_samples; ++samples) {
      replica.micro_batch = samples;
      std::map<int, LayerTimes> of_kind;
      for (std::size_t layer = 0; layer < kinds_.size(); ++layer) {
        const auto known = of_kind.find(kinds_[layer]);
        const LayerTimes times =
            known != of_kind.end() ? known->second : layer_times(StageId(layer), replica);
        of_kind.emplace(kinds_[layer], times);
        result[samples - 1].push_back(times);
      }
    }
    return result;
  }

  /// The attention that selective recomputation does again is the difference of two timings.
  LayerTimes layer_times(StageId layer, const StageReplica& replica) {
    const auto with = [&](Recomputation recomputation) {
      plan_.stages[layer].recomputation = recomputation;
      return replica_times({graph_, request_.precision}, staged_, plan_, layer, replica, cluster_,
                           works_);
    };
    const StageTimes::Compute none = with(Recomputation::none),
                              selective = with(Recomputation::selective);
    return {none.forward_s, none.input_gradient_s, none.weight_gradient_s,
            std::max(0.0, selective.input_gradient_s - none.input_gradient_s)};
  }

  /// Linear in the samples of a micro-batch, from those of one and two.
  void set_memory() {
    for (const int degree : result_.degrees) {
      auto& by_samples = result_.bytes.emplace_back(result_.most_samples);
      std::map<int, std::pair<LayerBytes, LayerBytes>> of_kind;
      for (std::size_t layer = 0; layer < kinds_.size(); ++layer) {
        if (!of_kind.contains(kinds_[layer])) {
          of_kind[kinds_[layer]] = {layer_bytes(layer, degree, 1), layer_bytes(layer, degree, 2)};
        }
        const auto& [one, two] = of_kind[kinds_[layer]];
        for (std::size_t m = 0; m < by_samples.size(); ++m) {
          LayerBytes& bytes = by_samples[m].emplace_back();
          const auto more = static_cast<double>(m);
          for (std::size_t r = 0; r < 3; ++r) {
            bytes.kept[r] = one.kept[r] + more * (two.kept[r] - one.kept[r]);
            bytes.split[r] = one.split[r] + more * (two.split[r] - one.split[r]);
            bytes.extra[r] = one.extra[r] + more * (two.extra[r] - one.extra[r]);
          }
        }
      }
    }
  }

  /// The bytes of one layer by itself, by recomputation. `extra` is the fullest pass less what is
  /// kept.
  LayerBytes layer_bytes(std::size_t layer, int degree, std::int64_t samples) {
    LayerBytes bytes;
    for (const Recomputation r : recomputations) {
      // Norms by rows cost the same and take less memory.
      const StagePart part{staged_, StageId(layer), works_.shards().of(degree, 0), samples,
                           r,       degree > 1};
      const StageMemory memory = stage_memory(part, request_.precision);
      const std::uint64_t most = std::max({memory.forward, memory.recompute, memory.backward,
                                           memory.input_gradient, memory.weight_gradient});
      bytes.kept[static_cast<std::size_t>(r)] = static_cast<double>(memory.after_forward);
      bytes.split[static_cast<std::size_t>(r)] = static_cast<double>(memory.after_input_gradient);
      bytes.extra[static_cast<std::size_t>(r)] =
          static_cast<double>(most - std::min(most, memory.after_forward));
    }
    return bytes;
  }

  /// Elements by layer, each on the fullest rank of a group; tables shared by first and last layer
  /// apart.
  void add_parameters(int degree) {
    const auto fullest = [&](const std::vector<NodeId>& nodes, double (*elements)(const Node&)) {
      double most = 0;
      for (int index = 0; index < degree; ++index) {
        double sum = 0;
        for (const NodeId id : nodes) {
          sum += elements(works_.shards().of(degree, index).graph.node(id));
        }
        most = std::max(most, sum);
      }
      return most;
    };
    const auto frozen = [](const Node& node) {
      return parameter_elements(node) - trained_elements(node);
    };
    std::vector<double>& layers = result_.parameters.emplace_back();
    for (const auto& nodes : staged_.nodes) layers.push_back(fullest(nodes, trained_elements));
    if (graph_.parameter_count() > graph_.trained_parameter_count()) {
      std::vector<double>& bytes = result_.frozen_bytes.emplace_back();
      for (const auto& nodes : staged_.nodes) {
        bytes.push_back(fullest(nodes, frozen) *
                        static_cast<double>(bytes_per_element(request_.precision)));
      }
    }
    // cut_graph() names a table only where its head is in another layer.
    for (const StagedGraph::Tied& tied : staged_.tied) {
      result_.tied_parameters.push_back(fullest({tied.owner}, trained_elements));
    }
  }

  /// Bytes per sample over each border, by wire format. What crosses several borders counts at
  /// each, as in a chain. Nothing comes back to frozen layers.
  void set_cuts() {
    const BatchExtent usual = usual_extent(graph_, 1);
    for (int layer = 0; layer + 1 < result_.layers; ++layer) {
      std::set<NodeId> crossing, with_gradient;
      for (const StageEdge& edge : staged_.edges) {
        if (edge.from > StageId(layer) || edge.to <= StageId(layer)) continue;
        crossing.insert(edge.nodes.begin(), edge.nodes.end());
        with_gradient.insert(edge.with_gradient.begin(), edge.with_gradient.end());
      }
      const std::vector<NodeId> nodes(crossing.begin(), crossing.end());
      const std::vector<NodeId> back(with_gradient.begin(), with_gradient.end());
      std::array<double, 3> forward{}, backward{};
      for (const WireFormat format : {WireFormat::fp32, WireFormat::bf16, WireFormat::int8}) {
        const auto f = static_cast<std::size_t>(format);
        forward[f] =
            static_cast<double>(message_bytes(graph_, nodes, usual, request_.precision, format));
        backward[f] =
            static_cast<double>(message_bytes(graph_, back, usual, request_.precision, format));
      }
      result_.activation_bytes.push_back(forward);
      result_.gradient_bytes.push_back(backward);
    }
  }

  /// The slowest of the pairs, by a message of a MiB; one pair says all where labels have links.
  void set_links() {
    const bool pairs = std::ranges::any_of(cluster_.links,
                                           [](const Link& link) { return link.ranks.has_value(); });
    for (const PoolRanks& from : pools_) {
      auto& row = result_.links.emplace_back();
      for (const PoolRanks& to : pools_) row.push_back(slowest_link(from, to, pairs));
    }
  }

  LinkCurve slowest_link(const PoolRanks& from, const PoolRanks& to, bool all_pairs) const {
    const LinkCurve* slowest = nullptr;
    for (const RankId a : from.all()) {
      for (const RankId b : to.all()) {
        if (a == b) continue;
        const LinkCurve& link = cluster_.link(a, b);
        if (slowest == nullptr || link.time(Bytes(1 << 20)) > slowest->time(Bytes(1 << 20))) {
          slowest = &link;
        }
        if (!all_pairs) return *slowest;
      }
    }
    return slowest != nullptr ? *slowest : LinkCurve();
  }

  const ModelGraph& graph_;
  const Cluster& cluster_;
  const PlanningRequest& request_;
  const std::vector<PoolRanks>& pools_;
  std::vector<int> kinds_;
  Plan plan_;
  StagedGraph staged_;
  StageWorkTable works_;
  PlanningProblem result_;
};

}  // namespace

GraphProblem::GraphProblem(const ModelGraph& graph, const Cluster& cluster,
                           const PlanningRequest& request)
    : graph_(graph), cluster_(cluster), request_(request), layer_ends_(layer_ends(graph)) {
  check_rates(cluster, request.precision);
  const std::vector<PoolRanks> pools = pools_of(cluster, request.precision);
  problem_ = ProblemMaker(graph, cluster, request, pools, layer_ends_).run();
  const ParameterBytes bytes = bytes_per_parameter(request.precision, request.optimizer);
  problem_.weight_bytes = static_cast<double>(bytes.kept);
  problem_.optimizer_bytes = static_cast<double>(bytes.spread);
  problem_.master_bytes = static_cast<double>(bytes_per_master(request.precision));
  for (const PoolRanks& pool : pools) nodes_.push_back(pool.nodes);
  check_problem(problem_);
}

}  // namespace heteroperf
