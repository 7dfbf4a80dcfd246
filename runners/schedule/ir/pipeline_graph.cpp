#include "runners/schedule/ir/pipeline_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <set>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// Collects problems of a graph; stops collecting after some.
class Complaints {
 public:
  void require(bool holds, const std::function<Problem()>& problem) {
    if (!holds && problems_.size() < 16) problems_.push_back(problem());
  }
  bool empty() const { return problems_.empty(); }
  void raise() const {
    if (!problems_.empty()) throw UserError(problems_);
  }

 private:
  std::vector<Problem> problems_;
};

void check_sizes(const PipelineGraph& g) {
  Complaints complaints;
  const auto within = [&](const char* what, int value, int most) {
    complaints.require(value >= 1 && value <= most, [&] {
      return Problem{fmt::format("a schedule of {} {}", value, what), "",
                     fmt::format("Give 1 to {}.", most)};
    });
  };
  within("ranks", g.ranks, most_ranks);
  within("micro-batches", g.micro_batches, static_cast<int>(most_tasks));
  within("sequence parts", g.parts, most_parts);
  complaints.require(!g.segments.empty(), [] {
    return Problem{"a graph without segments", "nothing would run", "Add at least one segment."};
  });
  complaints.raise();
  const long long tasks =
      static_cast<long long>(g.segments.size()) * g.micro_batches * static_cast<long long>(g.parts);
  complaints.require(tasks <= most_tasks, [&] {
    return Problem{fmt::format("a schedule of {} tasks per pass", tasks),
                   fmt::format("{} segments x {} micro-batches x {} parts; at most {}",
                               g.segments.size(), g.micro_batches, g.parts, most_tasks),
                   "Use fewer ranks, chunks or micro-batches."};
  });
  complaints.raise();
}

bool is_cost(double value) { return value >= 0 && value <= most_cost; }

void fill_defaults(PipelineGraph& graph) {
  int next = 0;
  for (const Segment& segment : graph.segments) next = std::max(next, segment.weights + 1);
  for (Segment& segment : graph.segments) {
    if (segment.weights < 0) segment.weights = next++;
    if (segment.micro_batches < 0) {
      segment.micro_batches = graph.micro_batches - segment.first_micro_batch;
    }
  }
}

void check_segments(const PipelineGraph& graph, Complaints& complaints) {
  for (std::size_t i = 0; i < graph.segments.size(); ++i) {
    const Segment& s = graph.segments[i];
    complaints.require(s.rank >= 0 && s.rank < graph.ranks, [&] {
      return Problem{fmt::format("segment {} lies on rank {}", i, s.rank),
                     fmt::format("the graph has {} ranks", graph.ranks),
                     fmt::format("Give 0 to {}.", graph.ranks - 1)};
    });
    complaints.require(is_cost(s.forward) && is_cost(s.input_gradient) &&
                           is_cost(s.weight_gradient) && is_cost(s.activation),
                       [&] {
                         return Problem{
                             fmt::format("segment {} costs {}, {}, {} and holds {}", i, s.forward,
                                         s.input_gradient, s.weight_gradient, s.activation),
                             "a cost is a number from 0 to 1e15", "Mend its costs."};
                       });
    complaints.require(s.first_micro_batch >= 0 && s.micro_batches >= 0 &&
                           s.first_micro_batch <= graph.micro_batches - s.micro_batches,
                       [&] {
                         return Problem{fmt::format("segment {} takes {} micro-batches from {}", i,
                                                    s.micro_batches, s.first_micro_batch),
                                        fmt::format("there are {}", graph.micro_batches), ""};
                       });
  }
}

void check_edges(const PipelineGraph& graph, Complaints& complaints) {
  const int segments = static_cast<int>(graph.segments.size());
  std::set<std::pair<int, int>> seen;
  for (std::size_t i = 0; i < graph.edges.size(); ++i) {
    const Edge& e = graph.edges[i];
    const bool inside = e.from >= 0 && e.from < segments && e.to >= 0 && e.to < segments;
    complaints.require(inside && e.from != e.to, [&] {
      return Problem{fmt::format("edge {} goes from segment {} to {}", i, e.from, e.to),
                     fmt::format("segments are 0 to {}, and none feeds itself", segments - 1), ""};
    });
    complaints.require(is_cost(e.bytes), [&] {
      return Problem{fmt::format("edge {} carries {} bytes", i, e.bytes), "", "Give 0 or more."};
    });
    complaints.require(is_cost(e.activation_time) && is_cost(e.gradient_time), [&] {
      return Problem{fmt::format("messages of edge {} take {} and {} beyond the latency", i,
                                 e.activation_time, e.gradient_time),
                     "a cost is a number from 0 to 1e15", "Mend its times."};
    });
    if (!inside) continue;
    const Segment &from = graph.segments[e.from], &to = graph.segments[e.to];
    complaints.require(
        from.first_micro_batch == to.first_micro_batch && from.micro_batches == to.micro_batches,
        [&] {
          return Problem{fmt::format("edge {} joins segments {} and {}", i, e.from, e.to),
                         "different micro-batches pass them", ""};
        });
    complaints.require(seen.insert({e.from, e.to}).second, [&] {
      return Problem{fmt::format("edge {} repeats the edge from segment {} to {}", i, e.from, e.to),
                     "", "Give one edge with the bytes of both."};
    });
  }
}

void check_interaction(const PipelineGraph& graph, std::size_t i, Complaints& complaints) {
  const Interaction& x = graph.interactions[i];
  complaints.require(x.every >= 1 && is_cost(x.cost) && !x.members.empty(), [&] {
    return Problem{fmt::format("interaction {} of {} segments, every {} micro-batches, cost {}", i,
                               x.members.size(), x.every, x.cost),
                   "", "Give members, at least one micro-batch and a cost of 0 or more."};
  });
  complaints.require(std::set<int>(x.members.begin(), x.members.end()).size() == x.members.size(),
                     [&] {
                       return Problem{fmt::format("interaction {} names a segment twice", i), "",
                                      "Name each once."};
                     });
  const Segment* first = nullptr;
  for (const int member : x.members) {
    const bool inside = member >= 0 && member < static_cast<int>(graph.segments.size());
    const Segment* segment = inside ? &graph.segments[member] : nullptr;
    if (first == nullptr) first = segment;
    complaints.require(inside && segment->first_micro_batch == first->first_micro_batch &&
                           segment->micro_batches == first->micro_batches,
                       [&] {
                         return Problem{fmt::format("interaction {} has the member {}", i, member),
                                        "no such segment, or other micro-batches pass it", ""};
                       });
  }
}

void check_ties(const PipelineGraph& graph, Complaints& complaints) {
  for (const std::vector<int>& set : graph.tied) {
    complaints.require(set.size() > 1 && std::set<int>(set.begin(), set.end()).size() == set.size(),
                       [&] {
                         return Problem{fmt::format("a tied set of {} segments", set.size()),
                                        "weights are tied between two or more different ones", ""};
                       });
    for (const int segment : set) {
      complaints.require(segment >= 0 && segment < static_cast<int>(graph.segments.size()), [&] {
        return Problem{fmt::format("tied weights of segment {}", segment), "no such segment", ""};
      });
    }
  }
}

void check_scales(const PipelineGraph& graph, Complaints& complaints) {
  const auto& scale = graph.micro_batch_scale;
  complaints.require(scale.empty() || scale.size() == static_cast<std::size_t>(graph.micro_batches),
                     [&] {
                       return Problem{fmt::format("{} micro-batch scales for {} micro-batches",
                                                  scale.size(), graph.micro_batches),
                                      "", "Give one each, or none."};
                     });
  complaints.require(is_cost(graph.latency) && is_cost(graph.fused_cost_factor) &&
                         std::all_of(scale.begin(), scale.end(), is_cost),
                     [&] {
                       return Problem{fmt::format("latency {}, fused factor {}, or a micro-batch "
                                                  "scale",
                                                  graph.latency, graph.fused_cost_factor),
                                      "not a number from 0 to 1e15", ""};
                     });
}

/// Segments that remain when every one without an unmet input is taken away, again and again.
std::vector<int> sorted_segments(const PipelineGraph& graph) {
  const std::size_t count = graph.segments.size();
  std::vector<int> unmet(count, 0), offset(count + 1, 0), next(graph.edges.size());
  for (const Edge& edge : graph.edges) ++unmet[edge.to], ++offset[edge.from + 1];
  for (std::size_t i = 0; i < count; ++i) offset[i + 1] += offset[i];
  std::vector<int> fill(offset.begin(), offset.end() - 1);
  for (const Edge& edge : graph.edges) next[fill[edge.from]++] = edge.to;

  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (std::size_t i = 0; i < count; ++i) {
    if (unmet[i] == 0) ready.push(static_cast<int>(i));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int segment = ready.top();
    ready.pop();
    order.push_back(segment);
    for (int k = offset[segment]; k < offset[segment + 1]; ++k) {
      if (--unmet[next[k]] == 0) ready.push(next[k]);
    }
  }
  return order;
}

void check_cycles(const PipelineGraph& graph) {
  const std::vector<int> order = sorted_segments(graph);
  if (order.size() == graph.segments.size()) return;
  std::set<int> left;
  for (std::size_t i = 0; i < graph.segments.size(); ++i) left.insert(static_cast<int>(i));
  for (const int segment : order) left.erase(segment);
  // Every segment left has an input that is left too: walking back must come round.
  std::vector<int> walk{*left.begin()};
  while (std::count(walk.begin(), walk.end(), walk.back()) == 1) {
    const auto input = std::find_if(graph.edges.begin(), graph.edges.end(), [&](const Edge& edge) {
      return edge.to == walk.back() && left.contains(edge.from);
    });
    walk.push_back(input->from);
  }
  walk.erase(walk.begin(), std::find(walk.begin(), walk.end(), walk.back()));
  std::string text;
  for (auto it = walk.rbegin(); it != walk.rend(); ++it) {
    text += fmt::format("{}{}", it == walk.rbegin() ? "" : " -> ", *it);
  }
  throw UserError("the graph's edges form a cycle", "segments " + text, "Remove one of the edges.");
}

bool crosses(const PipelineGraph& graph, const Edge& edge) {
  return graph.segments[edge.from].rank != graph.segments[edge.to].rank;
}

double scaled(const PipelineGraph& graph, double cost, int micro_batch) {
  const double scale = graph.micro_batch_scale.empty() ? 1 : graph.micro_batch_scale[micro_batch];
  return cost * scale / graph.parts;
}

}  // namespace

double PipelineGraph::forward(int segment, int micro_batch) const {
  return scaled(*this, segments[segment].forward, micro_batch);
}

double PipelineGraph::input_gradient(int segment, int micro_batch) const {
  return scaled(*this, segments[segment].input_gradient, micro_batch);
}

double PipelineGraph::weight_gradient(int segment, int micro_batch) const {
  return scaled(*this, segments[segment].weight_gradient, micro_batch);
}

double PipelineGraph::activation_delay(int edge) const {
  return crosses(*this, edges[edge]) ? latency + edges[edge].activation_time : 0;
}

double PipelineGraph::gradient_delay(int edge) const {
  return crosses(*this, edges[edge]) ? latency + edges[edge].gradient_time : 0;
}

double PipelineGraph::segment_work(int segment) const {
  const Segment& s = segments[segment];
  double passing = s.micro_batches;
  if (!micro_batch_scale.empty()) {
    const auto first = micro_batch_scale.begin() + s.first_micro_batch;
    passing = std::accumulate(first, first + s.micro_batches, 0.0);
  }
  return passing * (s.forward + s.input_gradient + s.weight_gradient);
}

double PipelineGraph::weight_copies() const {
  std::set<int> distinct;
  for (const Segment& segment : segments) distinct.insert(segment.weights);
  return static_cast<double>(segments.size()) / static_cast<double>(distinct.size());
}

bool PipelineGraph::passes(int segment, int micro_batch) const {
  const int index = micro_batch - segments[segment].first_micro_batch;
  return index >= 0 && index < segments[segment].micro_batches;
}

void normalise(PipelineGraph& graph) {
  check_sizes(graph);
  fill_defaults(graph);
  Complaints complaints;
  check_segments(graph, complaints);
  check_edges(graph, complaints);
  if (complaints.empty()) {
    for (std::size_t i = 0; i < graph.interactions.size(); ++i) {
      check_interaction(graph, i, complaints);
    }
  }
  check_ties(graph, complaints);
  check_scales(graph, complaints);
  complaints.raise();
  check_cycles(graph);
}

std::vector<int> topological_order(const PipelineGraph& graph) { return sorted_segments(graph); }

}  // namespace heteroperf
