// A plan from one line per component: its degrees of tensor, context, data and pipeline
// parallelism, and its ranks. A component's nodes are cut into as many parts as its pipeline has
// positions; every stage gets the component's replicas. Stages stand in the order in which the
// graph begins their components, so that a component that feeds another one comes first.
//
// Components that feed each other, as streams that exchange between their blocks, have no such
// order. They are cut a second time, into *rounds*: a node is at least one round behind what it
// reads of another stream, and never in a round before that of an earlier node of its own. The
// first rounds of all these components stand before the second ones, so that edges between stages
// go forward, and within a round the streams do not wait for each other.
#include "runners/plan/layout_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "metrics/base/error.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/schedule/ir/pipeline_graph.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/sequence_roles.hpp"

namespace heteroperf {
namespace {

struct Axis {
  const char* name;
  int ComponentLayout::*degree;
};
constexpr std::array<Axis, 4> axes{{{"tp", &ComponentLayout::tensor},
                                    {"cp", &ComponentLayout::context},
                                    {"dp", &ComponentLayout::data},
                                    {"pp", &ComponentLayout::pipeline}}};
constexpr const char* form = "COMPONENT=AXES[@FIRST[-LAST]], as vision=tp2,dp2@0-3";

std::optional<int> number_of(std::string_view text) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// Reads "tp2,dp3" into the layout.
void read_axes(std::string_view text, const std::string& whole, ComponentLayout& layout,
               ProblemList& problems) {
  std::set<std::string_view> seen;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    const auto axis =
        std::ranges::find_if(axes, [&](const Axis& each) { return word.starts_with(each.name); });
    const std::optional<int> degree = axis == axes.end() ? std::nullopt : number_of(word.substr(2));
    if (!degree || *degree < 1 || *degree > most_ranks) {
      problems.add(fmt::format("--layout {} has the axis '{}'", whole, word),
                   "an axis is tp, cp, dp or pp and a degree from 1 on",
                   fmt::format("Give {}.", form));
    } else if (!seen.insert(axis->name).second) {
      problems.add(fmt::format("--layout {} has {} twice", whole, axis->name), "", "Name it once.");
    } else {
      layout.*(axis->degree) = *degree;
    }
    if (comma == std::string_view::npos) return;
    text.remove_prefix(comma + 1);
  }
}

/// Reads "0-3" or "2" into the layout.
void read_ranks(std::string_view text, const std::string& whole, ComponentLayout& layout,
                ProblemList& problems) {
  const std::size_t dash = text.find('-');
  const bool names_last = dash != std::string_view::npos;
  const std::optional<int> first = number_of(text.substr(0, dash));
  const std::optional<int> last = names_last ? number_of(text.substr(dash + 1)) : first;
  if (!first || !last || *last < *first || *last >= most_ranks) {
    problems.add(fmt::format("--layout {} names the ranks '{}'", whole, text),
                 "ranks are FIRST-LAST, or the first one alone", fmt::format("Give {}.", form));
    return;
  }
  layout.first_rank = *first;
  if (names_last) layout.last_rank = last;
}

/// The rounds of components that feed each other; all others have one round.
struct Rounds {
  std::vector<std::size_t> component_of;  ///< by node
  std::vector<std::size_t> round_of;      ///< by node
  /// By component: the first one of those that it exchanges with, or itself.
  std::vector<std::size_t> first_stream;

  Rounds(const ModelGraph& graph, const std::vector<std::string>& components) {
    for (const Node& node : graph.nodes()) {
      std::size_t component = 0;
      while (components[component] != node.branch) ++component;
      component_of.push_back(component);
    }
    find_streams(graph, components.size());
    std::vector<std::size_t> reached(components.size(), 0);
    for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
      std::size_t& round = reached[component_of[n]];
      for (const NodeId input : graph.nodes()[n].inputs) {
        const std::size_t from = component_of[input.index()];
        const bool exchanges = first_stream[from] == first_stream[component_of[n]];
        if (exchanges && from != component_of[n]) {
          round = std::max(round, round_of[input.index()] + 1);
        }
      }
      round_of.push_back(round);
    }
  }

 private:
  /// Components exchange where each can be reached from the other.
  void find_streams(const ModelGraph& graph, std::size_t count) {
    std::vector<std::vector<bool>> reaches(count, std::vector<bool>(count));
    for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
      for (const NodeId input : graph.nodes()[n].inputs) {
        reaches[component_of[input.index()]][component_of[n]] = true;
      }
    }
    for (std::size_t via = 0; via < count; ++via) {
      for (std::size_t from = 0; from < count; ++from) {
        for (std::size_t to = 0; to < count && reaches[from][via]; ++to) {
          if (reaches[via][to]) reaches[from][to] = true;
        }
      }
    }
    for (std::size_t c = 0; c < count; ++c) {
      std::size_t first = 0;
      while (first < c && !(reaches[first][c] && reaches[c][first])) ++first;
      first_stream.push_back(first);
    }
  }
};

/// Makes one plan; collects what is wrong with the request.
class LayoutPlan {
 public:
  LayoutPlan(const ModelGraph& graph, const LayoutPlanRequest& request)
      : graph_(graph), request_(request), components_(components_of(graph)) {}

  Plan run() {
    check_components();
    for (const ComponentLayout& layout : request_.layouts) check(layout);
    problems_.throw_if_any();
    Plan plan;
    plan.graph_hash = graph_.hash();
    plan.schedule = request_.schedule;
    plan.micro_batches = request_.micro_batches;
    plan.zero_stage = request_.zero_stage;
    plan.sequence_parallel = request_.sequence_parallel;
    const std::vector<std::size_t> positions = cut_components();
    problems_.throw_if_any();
    add_stages(positions, plan);
    return plan;
  }

 private:
  const ComponentLayout& layout_of(const std::string& component) const {
    return *std::ranges::find(request_.layouts, component, &ComponentLayout::component);
  }

  void check_components() {
    std::map<std::string, int> named;
    for (const ComponentLayout& layout : request_.layouts) ++named[layout.component];
    for (const auto& [component, times] : named) {
      if (std::ranges::find(components_, component) == components_.end()) {
        problems_.add(fmt::format("the model '{}' has no component '{}'", graph_.name, component),
                      fmt::format("its components are {}", fmt::join(components_, ", ")),
                      suggest_name(component, components_));
      } else if (times > 1) {
        problems_.add(fmt::format("{} layouts for the component '{}'", times, component), "",
                      "Give one.");
      }
    }
    for (const std::string& component : components_) {
      if (named.contains(component)) continue;
      problems_.add(fmt::format("the component '{}' has no layout", component),
                    "every component needs one", fmt::format("Give --layout {}=dp1.", component));
    }
  }

  void check(const ComponentLayout& layout) {
    if (layout.ranks() > most_ranks) {
      problems_.add(
          fmt::format("the layout of '{}' has {} ranks", layout.component, layout.ranks()),
          fmt::format("there can be {}", most_ranks), "Give smaller degrees.");
    }
    const std::int64_t named =
        layout.last_rank ? *layout.last_rank - layout.first_rank + 1 : layout.ranks();
    if (named != layout.ranks()) {
      problems_.add(fmt::format("the layout of '{}' names {} ranks", layout.component, named),
                    fmt::format("tp{} x cp{} x dp{} x pp{} are {}", layout.tensor, layout.context,
                                layout.data, layout.pipeline, layout.ranks()),
                    "Name as many, or the first one alone.");
    }
    if (layout.data > request_.micro_batch) {
      problems_.add(fmt::format("{} replicas of '{}' for {} samples of a micro-batch", layout.data,
                                layout.component, request_.micro_batch),
                    "every replica needs one", "Give a larger --micro-batch or fewer replicas.");
    }
  }

  /// Returns every node's position within its component's pipeline.
  std::vector<std::size_t> cut_components() {
    std::vector<std::size_t> positions(graph_.nodes().size());
    for (const std::string& component : components_) {
      const auto stages = static_cast<std::size_t>(layout_of(component).pipeline);
      std::size_t position = 0;
      for (const auto& nodes : even_stages(graph_, component, stages, problems_)) {
        for (const NodeId node : nodes) positions[node.index()] = position;
        ++position;
      }
    }
    return positions;
  }

  /// Adds a stage for every component, round and position that has nodes.
  void add_stages(const std::vector<std::size_t>& positions, Plan& plan) const {
    const Rounds rounds(graph_, components_);
    std::map<std::array<std::size_t, 4>, std::vector<NodeId>> stages;
    for (std::size_t n = 0; n < positions.size(); ++n) {
      const std::size_t component = rounds.component_of[n];
      stages[{rounds.first_stream[component], rounds.round_of[n], component, positions[n]}]
          .emplace_back(n);
    }
    for (const auto& [place, nodes] : stages) {
      PlanStage& stage = plan.stages.emplace_back();
      stage.recomputation = request_.recomputation;
      for (const NodeId node : nodes) stage.nodes.push_back(graph_.node(node).name);
      const ComponentLayout& layout = layout_of(components_[place[2]]);
      int rank = layout.first_rank +
                 static_cast<int>(place[3]) * layout.tensor * layout.context * layout.data;
      const SequenceOrder order = usual_order(graph_, nodes);
      for (int i = 0; i < layout.data; ++i) {
        StageReplica copy;
        copy.micro_batch =
            request_.micro_batch / layout.data + (i < request_.micro_batch % layout.data ? 1 : 0);
        rank = add_replicas(stage, copy, layout.tensor, layout.context, order, rank);
      }
    }
  }

  const ModelGraph& graph_;
  const LayoutPlanRequest& request_;
  std::vector<std::string> components_;  ///< in the order in which the graph begins them
  ProblemList problems_;
};

}  // namespace

int Layouts::ranks() const {
  std::int64_t count = 0;
  for (const ComponentLayout& layout : *this) {
    count = std::max(count, std::min<std::int64_t>(most_ranks, layout.first_rank + layout.ranks()));
  }
  return static_cast<int>(count);
}

int Layouts::most_replicas() const {
  int most = 1;
  for (const ComponentLayout& layout : *this) most = std::max(most, layout.data);
  return most;
}

Layouts parse_layouts(const std::string& text) {
  Layouts layouts;
  ProblemList problems;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    ComponentLayout layout;
    const std::size_t equals = word.find('='), at = word.find('@');
    if (equals == std::string::npos || equals == 0 || at < equals) {
      problems.add(fmt::format("--layout {} is no layout", word), "",
                   fmt::format("Give {}.", form));
      continue;
    }
    layout.component = word.substr(0, equals);
    const std::string_view rest = std::string_view(word).substr(equals + 1);
    const std::size_t mark = rest.find('@');
    read_axes(rest.substr(0, mark), word, layout, problems);
    if (mark != std::string_view::npos) read_ranks(rest.substr(mark + 1), word, layout, problems);
    layouts.push_back(std::move(layout));
  }
  problems.throw_if_any();
  return layouts;
}

Plan layout_plan(const ModelGraph& graph, const LayoutPlanRequest& request) {
  return LayoutPlan(graph, request).run();
}

}  // namespace heteroperf
