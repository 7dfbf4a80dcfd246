// A model graph cut along the stages of a plan.
//
// A tensor crosses from one stage to a later one as soon as a node there uses it, and it crosses
// once per target however many nodes use it. Its gradient comes back only where a consumer leads to
// the loss and the tensor is differentiable. Edges go directly to the stage that needs them, past
// those between. A head tied to an embedding in another stage needs a copy of the table there; such
// pairs are listed, since their gradients have to be summed.
#include "runners/plan/staged_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <variant>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"

namespace heteroperf {
namespace {

bool is_data(const ModelGraph& graph, NodeId node) {
  return std::holds_alternative<Input>(graph.node(node).attributes);
}

/// Marks the nodes that the loss depends on.
std::vector<bool> reaches_loss(const ModelGraph& graph) {
  std::vector<bool> reaches(graph.nodes().size(), false);
  reaches[graph.loss().index()] = true;
  for (std::size_t i = reaches.size(); i-- > 0;) {
    if (!reaches[i]) continue;
    for (const NodeId input : graph.nodes()[i].inputs) reaches[input.index()] = true;
  }
  return reaches;
}

/// Cuts one graph; collects what is wrong with the plan.
class Cutter {
 public:
  Cutter(const ModelGraph& graph, const Plan& plan) : graph_(graph), plan_(plan) {}

  StagedGraph run() {
    assign_stages();
    problems_.throw_if_any();
    list_nodes();
    find_edges();
    find_tied();
    check_ways_to_loss();
    problems_.throw_if_any();
    return std::move(result_);
  }

 private:
  void assign_stages() {
    if (plan_.stages.empty()) problems_.add("a plan without stages", "", "Add at least one.");
    result_.stage_of.assign(graph_.nodes().size(), StageId::none());
    std::unordered_map<std::string, std::size_t> number;
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      number.emplace(graph_.nodes()[i].name, i);
    }
    for (const StageId stage : plan_.stages.ids()) {
      for (const std::string& name : plan_.stages[stage].nodes) {
        const auto place = number.find(name);
        place == number.end() ? unknown(stage, name) : assign(place->second, stage);
      }
    }
    check_missing();
  }

  void unknown(StageId stage, const std::string& name) {
    std::vector<std::string> names;
    for (const Node& node : graph_.nodes()) names.push_back(node.name);
    const std::string near = nearest_name(name, names);
    problems_.add(fmt::format("stage {} has the node '{}'", stage.value(), name),
                  "the model has no node of that name",
                  near.empty() ? "" : fmt::format("Did you mean '{}'?", near));
  }

  void assign(std::size_t node, StageId stage) {
    StageId& assigned = result_.stage_of[node];
    if (assigned >= 0) {
      problems_.add(fmt::format("node '{}' is in stages {} and {}", graph_.nodes()[node].name,
                                assigned.value(), stage.value()),
                    "each node has one stage", "Remove it from one of them.");
    }
    assigned = stage;
  }

  /// Every node belongs to a stage; the first few that do not are named.
  void check_missing() {
    std::string missing;
    int count = 0;
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (result_.stage_of[i] >= 0) continue;
      if (count++ < 4) missing += (count > 1 ? ", " : "") + graph_.nodes()[i].name;
    }
    if (count == 0) return;
    problems_.add(fmt::format("{} node{} in no stage", count, count == 1 ? " is" : "s are"),
                  missing + (count > 4 ? ", …" : ""), "Give every node of the model one stage.");
  }

  /// Lists the nodes of every stage in the order of the graph; a stage without any is a problem.
  void list_nodes() {
    result_.nodes.resize(plan_.stages.size());
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      result_.nodes[result_.stage_of[i]].push_back(NodeId(i));
    }
    for (const StageId stage : result_.nodes.ids()) {
      if (!result_.nodes[stage].empty()) continue;
      problems_.add(fmt::format("stage {} has no nodes", stage.value()), "it would do nothing",
                    "Give it some, or remove it.");
    }
  }

  /// Collects the tensors by pair of stages, so that each crosses once.
  void find_edges() {
    const std::vector<bool> reaches = reaches_loss(graph_);
    // By (from, to): the nodes that cross, and whether a gradient comes back.
    std::map<std::pair<StageId, StageId>, std::map<std::int32_t, bool>> crossing;
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      for (const NodeId input : graph_.nodes()[i].inputs) {
        const StageId from = result_.stage_of[input.index()], to = result_.stage_of[i];
        if (from > to) backwards(input, i, from, to);
        if (from >= to || is_data(graph_, input)) continue;
        bool& gradient = crossing[{from, to}][input.value()];
        gradient = gradient || (graph_.node(input).differentiable && reaches[i]);
      }
    }
    for (const auto& [ends, nodes] : crossing) {
      StageEdge& edge = result_.edges.emplace_back();
      edge.from = ends.first;
      edge.to = ends.second;
      for (const auto& [node, gradient] : nodes) {
        edge.nodes.emplace_back(node);
        if (gradient) edge.with_gradient.emplace_back(node);
      }
    }
  }

  void backwards(NodeId input, std::size_t node, StageId from, StageId to) {
    problems_.add(
        fmt::format("node '{}' of stage {} needs '{}' of stage {}", graph_.nodes()[node].name,
                    to.value(), graph_.node(input).name, from.value()),
        "stages feed later ones only",
        fmt::format("Move '{}' to stage {} or before.", graph_.node(input).name, to.value()));
  }

  /// Lists the stages that hold a copy of a table, its owner first.
  void find_tied() {
    std::map<std::int32_t, std::set<StageId>> copies;
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      const auto* linear = std::get_if<Linear>(&graph_.nodes()[i].attributes);
      if (linear == nullptr || linear->tied_to.empty()) continue;
      const NodeId owner = graph_.find(linear->tied_to);
      if (result_.stage_of[owner.index()] == result_.stage_of[i]) continue;
      copies[owner.value()].insert(result_.stage_of[i]);
    }
    for (const auto& [owner, stages] : copies) {
      StagedGraph::Tied& tied = result_.tied.emplace_back();
      tied.owner = NodeId(owner);
      tied.stages.push_back(result_.stage_of[tied.owner.index()]);
      tied.stages.insert(tied.stages.end(), stages.begin(), stages.end());
    }
  }

  /// Edges go forward, so a gradient out of every other stage leads to the loss, unless all in it
  /// is frozen.
  void check_ways_to_loss() {
    const StageId last = result_.stage_of[graph_.loss().index()];
    for (const StageId stage : result_.nodes.ids()) {
      const std::vector<NodeId>& nodes = result_.nodes[stage];
      const bool all_frozen =
          std::ranges::all_of(nodes, [&](NodeId id) { return is_frozen(graph_.node(id)); });
      if (stage == last || all_frozen) continue;
      const bool way = std::ranges::any_of(result_.edges, [&](const StageEdge& e) {
        return e.from == stage && !e.with_gradient.empty();
      });
      if (way) continue;
      problems_.add(fmt::format("stage {} gets no gradient", stage.value()),
                    "nothing that can be trained leads from it to the loss",
                    "Join it with the next stage.");
    }
  }

  const ModelGraph& graph_;
  const Plan& plan_;
  StagedGraph result_;
  ProblemList problems_;
};

}  // namespace

StagedGraph cut_graph(const ModelGraph& graph, const Plan& plan) {
  return Cutter(graph, plan).run();
}

std::vector<std::vector<NodeId>> all_consumers(const ModelGraph& graph) {
  std::vector<std::vector<NodeId>> users(graph.nodes().size());
  for (std::size_t n = 0; n < users.size(); ++n) {
    for (const NodeId input : graph.nodes()[n].inputs) {
      std::vector<NodeId>& of_input = users[input.index()];
      if (of_input.empty() || of_input.back() != NodeId(n)) of_input.emplace_back(n);
    }
  }
  return users;
}

std::vector<std::vector<NodeId>> crossing_tensors(const ModelGraph& graph) {
  const std::vector<Node>& nodes = graph.nodes();
  std::vector<std::size_t> last_use(nodes.size(), 0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const NodeId input : nodes[i].inputs) last_use[input.index()] = i;
  }
  std::vector<std::vector<NodeId>> crossing(nodes.size() + 1);
  std::vector<NodeId> open;
  for (std::size_t end = 1; end < nodes.size(); ++end) {
    const bool data = is_data(graph, NodeId(end - 1));
    if (!data) open.emplace_back(end - 1);
    std::erase_if(open, [&](NodeId node) { return last_use[node.index()] < end; });
    if (!data) crossing[end] = open;
  }
  return crossing;
}

std::vector<std::size_t> ends_of_own_use(const ModelGraph& graph) {
  const std::vector<Node>& nodes = graph.nodes();
  std::vector<std::size_t> ends(nodes.size(), 0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const NodeId input : nodes[i].inputs) {
      if (nodes[input.index()].branch == nodes[i].branch) ends[input.index()] = i + 1;
    }
  }
  return ends;
}

}  // namespace heteroperf
