// Plans of equal parts, from the degrees that are written on a command line.
//
// The graph's order is cut at places where as little as possible crosses. Of all such cuts those
// are taken with the smallest largest stage, and among these those with the least sum of squares,
// which evens out the other stages; both by one dynamic program over (stages, end) with another way
// to join. The positions of the stages are asked of the schedule's own generator, so that every
// schedule's plan has its stages where the schedule wants them.
#include "runners/plan/even_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/sequence_roles.hpp"

namespace heteroperf {
namespace {

/// A place between two nodes of the graph's order: the nodes before `end` lie before it.
struct Cut {
  std::size_t end = 0;
  /// The tensors that cross it to their own component, of the one that has the most.
  std::size_t tensors = 0;
};

/// All places of a component's order where something of it crosses that has a gradient or is
/// frozen.
std::vector<Cut> cuts_of(const ModelGraph& graph, const std::vector<NodeId>& component) {
  const std::vector<std::vector<NodeId>> crossing = crossing_tensors(graph);
  const std::vector<std::size_t> own_ends = ends_of_own_use(graph);
  const auto is_part = [&](NodeId node) { return std::ranges::binary_search(component, node); };
  std::vector<Cut> cuts;
  for (std::size_t end = 1; end < component.size(); ++end) {
    Cut cut{end, 0};
    bool has_stages = false;
    std::map<std::string, std::size_t> tensors;
    const std::size_t place = component[end - 1].index() + 1;
    for (const NodeId node : crossing[place]) {
      if (!is_part(node)) continue;
      if (own_ends[node.index()] > place) {
        cut.tensors = std::max(cut.tensors, ++tensors[graph.node(node).branch]);
      }
      has_stages = has_stages || graph.node(node).differentiable || is_frozen(graph.node(node));
    }
    if (has_stages) cuts.push_back(cut);
  }
  return cuts;
}

/// Ends of the stages: the largest sum of `work` is as small as can be, then the sum of squares.
class EvenCut {
 public:
  /// `speeds`: of the stages; their work over it is evened out.
  EvenCut(const std::vector<double>& work, const std::vector<Cut>& cuts, std::size_t stages,
          std::vector<double> speeds)
      : stages_(stages), speeds_(std::move(speeds)) {
    speeds_.resize(stages, 1);
    sums_.assign(1, 0);
    for (const double seconds : work) sums_.push_back(sums_.back() + seconds);
    ends_.assign(1, 0);
    for (const Cut& cut : cuts) ends_.push_back(cut.end);
    ends_.push_back(work.size());
  }

  std::vector<std::size_t> run() const {
    const double most = fill([](double a, double b) { return std::max(a, b); }, infinite, nullptr);
    std::vector<std::size_t> result;
    fill([](double a, double b) { return a + b * b; }, most * (1 + 1e-12), &result);
    return result;
  }

 private:
  /// Dynamic programme over (stages, end); a stage's work stays within `limit`.
  template <class Join>
  double fill(Join join, double limit, std::vector<std::size_t>* result) const {
    const std::size_t places = ends_.size();
    std::vector<std::vector<double>> best(stages_ + 1, std::vector<double>(places, infinite));
    std::vector<std::vector<std::size_t>> from(stages_ + 1, std::vector<std::size_t>(places, 0));
    best[0][0] = 0;
    for (std::size_t stage = 1; stage <= stages_; ++stage) {
      for (std::size_t to = stage; to < places; ++to) {
        for (std::size_t start = to; start-- > stage - 1;) {
          const double work = (sums_[ends_[to]] - sums_[ends_[start]]) / speeds_[stage - 1];
          if (work > limit) break;
          const double value = join(best[stage - 1][start], work);
          if (value < best[stage][to]) best[stage][to] = value, from[stage][to] = start;
        }
      }
    }
    if (result != nullptr) {
      std::size_t place = places - 1;
      for (std::size_t stage = stages_; stage > 0; place = from[stage--][place]) {
        result->insert(result->begin(), ends_[place]);
      }
    }
    return best[stages_][places - 1];
  }

  std::size_t stages_;
  std::vector<double> speeds_;
  std::vector<double> sums_;
  std::vector<std::size_t> ends_;  // 0, the cuts, all nodes
};

class EvenPlan {
 public:
  EvenPlan(const ModelGraph& graph, const EvenPlanRequest& request)
      : graph_(graph), request_(request) {}

  Plan run() {
    check_numbers();
    problems_.throw_if_any();
    check_heads();
    const auto stages =
        static_cast<std::size_t>(request_.pipeline) * static_cast<std::size_t>(request_.chunks);
    const std::vector<std::vector<NodeId>> nodes =
        even_stages(graph_, "", stages, problems_, request_.speeds);
    const PipelineGraph placed = placement();
    problems_.throw_if_any();
    Plan plan;
    plan.graph_hash = graph_.hash();
    plan.schedule = request_.schedule;
    plan.chunks = request_.chunks;
    plan.micro_batches = request_.micro_batches;
    plan.zero_stage = request_.zero_stage;
    plan.sequence_parallel = request_.sequence_parallel;
    add_stages(nodes, plan);
    add_replicas(placed, nodes, plan);
    return plan;
  }

 private:
  void check_numbers() {
    const auto positive = [&](const char* what, long long value, long long most) {
      if (value >= 1 && value <= most) return;
      problems_.add(fmt::format("{} of {}", what, value), "", fmt::format("Give 1 to {}.", most));
    };
    positive("a pipeline degree (pp)", request_.pipeline, most_degree);
    positive("a tensor-parallel degree (tp)", request_.tensor, most_degree);
    positive("a context-parallel degree (cp)", request_.context, most_degree);
    positive("a data-parallel degree (dp)", request_.data, most_degree);
    positive("chunks", request_.chunks, most_degree);
    positive("a micro-batch", request_.micro_batch, std::int64_t{1} << 40);
    positive("micro-batches", request_.micro_batches, most_tasks);
    check_zero_stage(request_.zero_stage, problems_);

    const double ranks =
        static_cast<double>(request_.pipeline) * request_.tensor * request_.context * request_.data;
    if (ranks > most_degree) {
      problems_.add(fmt::format("pp {} x tp {} x cp {} x dp {} are {} ranks", request_.pipeline,
                                request_.tensor, request_.context, request_.data, ranks),
                    fmt::format("there can be {}", most_degree), "Give smaller degrees.");
    }
  }

  /// Attention gives every rank whole heads; the first layer that does not allow it is named.
  void check_heads() {
    if (request_.tensor == 1) return;
    for (const Node& node : graph_.nodes()) {
      const auto attention = attention_heads(node.attributes);
      if (!attention || attention->divide_by(request_.tensor)) continue;
      problems_.add(fmt::format("tp {} for {} heads and {} key-value heads", request_.tensor,
                                attention->heads, attention->kv_heads),
                    fmt::format("'{}' gives every rank whole heads", node.name),
                    "Give a degree that divides both.");
      return;
    }
  }

  /// The generator's own graph, or what it refuses.
  PipelineGraph placement() {
    PipelineGraph graph;
    collect_problems(problems_, [&] {
      ScheduleRequest request;
      request.ranks = request_.pipeline;
      request.micro_batches = request_.micro_batches;
      request.chunks = request_.chunks;
      request.costs = uniform_costs(request_.pipeline, 1, 1, 1, 0);
      request.most_evaluations = 1;
      graph = find_generator(request_.schedule).make(request).graph;
    });
    return graph;
  }

  void add_stages(const std::vector<std::vector<NodeId>>& nodes, Plan& plan) const {
    for (const std::vector<NodeId>& of_stage : nodes) {
      PlanStage& stage = plan.stages.emplace_back();
      stage.recomputation = request_.recomputation;
      for (const NodeId node : of_stage) stage.nodes.push_back(graph_.node(node).name);
    }
  }

  void add_replicas(const PipelineGraph& placed, const std::vector<std::vector<NodeId>>& nodes,
                    Plan& plan) const {
    for (const SegmentId segment : placed.segments.ids()) {
      const std::size_t number_of_stage = segment.index() % plan.stages.size();
      PlanStage& stage = plan.stages[StageId(number_of_stage)];
      const SequenceOrder order = usual_order(graph_, nodes[number_of_stage]);
      for (int replica = 0; replica < request_.data; ++replica) {
        StageReplica copy;
        copy.micro_batch = request_.micro_batch;
        // A two-way schedule has a second copy of every stage, behind the first ones.
        copy.direction = static_cast<int>(segment.index() / plan.stages.size());
        const int number = placed.segments[segment].rank * request_.data + replica;
        heteroperf::add_replicas(stage, copy, request_.tensor, request_.context, order,
                                 number * request_.context * request_.tensor);
      }
    }
  }

  static constexpr int most_degree = most_ranks;
  const ModelGraph& graph_;
  const EvenPlanRequest& request_;
  ProblemList problems_;
};

}  // namespace

std::vector<std::vector<NodeId>> even_stages(const ModelGraph& graph, const std::string& component,
                                             std::size_t stages, ProblemList& problems,
                                             const std::vector<double>& speeds) {
  std::vector<NodeId> nodes;
  std::vector<double> work;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    if (!component.empty() && graph.nodes()[i].branch != component) continue;
    nodes.emplace_back(i);
    work.push_back(strict_node_ops(graph, NodeId(i), usual_extent(graph, 1)).train().to_double());
  }
  const std::vector<Cut> all = cuts_of(graph, nodes);
  if (all.size() + 1 < stages) {
    const std::string what = component.empty() ? "model '" + graph.name : "component '" + component;
    problems.add(fmt::format("{} stages for the {}'", stages, what),
                 fmt::format("it can be cut into {}", all.size() + 1),
                 "Use fewer positions or chunks, or a deeper model.");
    return {};
  }
  std::vector<Cut> single;
  std::ranges::copy_if(all, std::back_inserter(single),
                       [](const Cut& cut) { return cut.tensors <= 1; });
  const std::vector<Cut>& cuts = single.size() + 1 < stages ? all : single;
  std::vector<std::vector<NodeId>> result;
  auto begin = nodes.begin();
  for (const std::size_t end : EvenCut(work, cuts, stages, speeds).run()) {
    const auto stage_end = nodes.begin() + static_cast<std::ptrdiff_t>(end);
    result.emplace_back(begin, stage_end);
    begin = stage_end;
  }
  return result;
}

int add_replicas(PlanStage& stage, StageReplica copy, int tensor, int context, SequenceOrder order,
                 int first_rank) {
  for (int part = 0; part < context; ++part) {
    StageReplica& replica = stage.replicas.emplace_back(copy);
    if (context > 1) replica.part = {part, context, order};
    for (int t = 0; t < tensor; ++t) replica.ranks.emplace_back(first_rank++);
  }
  return first_rank;
}

Plan even_plan(const ModelGraph& graph, const EvenPlanRequest& request) {
  return EvenPlan(graph, request).run();
}

}  // namespace heteroperf
