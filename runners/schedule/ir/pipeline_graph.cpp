// Checks and queries of a graph. Whatever comes later (generators, checks, clocks) trusts a
// normalised graph and indexes plain vectors with its numbers, so everything wrong has to be found
// here: first the sizes, which bound the work of the rest, then each object, then cycles.

#include "runners/schedule/ir/pipeline_graph.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <set>

#include "metrics/base/error.hpp"
#include "runners/schedule/ir/grouped_lists.hpp"

namespace heteroperf {
namespace {

/// Collects the first problems of a graph. A broken file may have millions.
class Complaints {
 public:
  void add(std::string problem, std::string why, std::string suggestion) {
    constexpr std::size_t most_named = 16;
    if (problems_.problems().size() == most_named) return;
    problems_.add(std::move(problem), std::move(why), std::move(suggestion));
  }
  bool empty() const { return problems_.empty(); }
  void raise() const { problems_.throw_if_any(); }

 private:
  ProblemList problems_;
};

void check_sizes(const PipelineGraph& g) {
  Complaints complaints;
  const auto check = [&](const char* what, int value, int most) {
    if (value >= 1 && value <= most) return;
    complaints.add(fmt::format("a schedule of {} {}", value, what), "",
                   fmt::format("Give 1 to {}.", most));
  };
  check("ranks", g.ranks, most_ranks);
  check("micro-batches", g.micro_batches, static_cast<int>(most_tasks));
  check("sequence parts", g.parts, most_parts);
  if (g.segments.empty()) {
    complaints.add("a graph without segments", "nothing would run", "Add at least one segment.");
  }
  complaints.raise();
  const long long tasks =
      static_cast<long long>(g.segments.size()) * g.micro_batches * static_cast<long long>(g.parts);
  if (tasks <= most_tasks) return;
  throw UserError(fmt::format("a schedule of {} tasks per pass", tasks),
                  fmt::format("{} segments x {} micro-batches x {} parts; at most {}",
                              g.segments.size(), g.micro_batches, g.parts, most_tasks),
                  "Use fewer ranks, chunks or micro-batches.");
}

bool is_cost(double value) { return value >= 0 && value <= most_cost; }

bool has_repeats(const std::vector<SegmentId>& values) {
  return std::set<SegmentId>(values.begin(), values.end()).size() != values.size();
}

bool same_micro_batches(const Segment& a, const Segment& b) {
  return a.first_micro_batch == b.first_micro_batch && a.micro_batches == b.micro_batches;
}

/// Gives segments without `weights` numbers after the largest one, and sets micro_batches that are
/// −1.
void fill_defaults(PipelineGraph& graph) {
  int next = 0;
  for (const Segment& segment : graph.segments) next = std::max(next, segment.weights + 1);
  for (Segment& segment : graph.segments) {
    if (segment.weights < 0) segment.weights = next++;
    if (segment.micro_batches < 0) {
      segment.micro_batches = graph.micro_batches - segment.first_micro_batch.value();
    }
  }
}

/// Ranks, costs and the range of micro-batches of each segment.
void check_segments(const PipelineGraph& graph, Complaints& complaints) {
  int i = -1;
  for (const Segment& s : graph.segments) {
    ++i;
    if (s.rank < 0 || s.rank >= graph.ranks) {
      complaints.add(fmt::format("segment {} lies on rank {}", i, s.rank),
                     fmt::format("the graph has {} ranks", graph.ranks),
                     fmt::format("Give 0 to {}.", graph.ranks - 1));
    }
    if (!is_cost(s.forward) || !is_cost(s.input_gradient) || !is_cost(s.weight_gradient) ||
        !is_cost(s.activation) || !is_cost(s.weight_part)) {
      complaints.add(
          fmt::format("segment {} costs {}, {}, {} and holds {}, from B to W {} of it", i,
                      s.forward, s.input_gradient, s.weight_gradient, s.activation, s.weight_part),
          "a cost is a number from 0 to 1e15", "Mend its costs.");
    }
    if (s.first_micro_batch < 0 || s.micro_batches < 0 ||
        s.first_micro_batch.value() > graph.micro_batches - s.micro_batches) {
      complaints.add(fmt::format("segment {} takes {} micro-batches from {}", i, s.micro_batches,
                                 s.first_micro_batch.value()),
                     fmt::format("there are {}", graph.micro_batches), "");
    }
  }
}

/// Both ends have to exist and see the same micro-batches; no two edges join the same segments.
void check_edges(const PipelineGraph& graph, Complaints& complaints) {
  std::set<std::pair<SegmentId, SegmentId>> seen;
  int i = -1;
  for (const Edge& e : graph.edges) {
    ++i;
    const int from = e.from.value(), to = e.to.value();
    const bool inside = graph.segments.contains(e.from) && graph.segments.contains(e.to);
    if (!inside || e.from == e.to) {
      complaints.add(
          fmt::format("edge {} goes from segment {} to {}", i, from, to),
          fmt::format("segments are 0 to {}, and none feeds itself", graph.segments.size() - 1),
          "");
    }
    if (!is_cost(e.bytes)) {
      complaints.add(fmt::format("edge {} carries {} bytes", i, e.bytes), "", "Give 0 or more.");
    }
    if (!is_cost(e.activation_time) || !is_cost(e.gradient_time)) {
      complaints.add(fmt::format("messages of edge {} take {} and {} beyond the latency", i,
                                 e.activation_time, e.gradient_time),
                     "a cost is a number from 0 to 1e15", "Mend its times.");
    }
    if (!inside) continue;
    if (!same_micro_batches(graph.segments[e.from], graph.segments[e.to])) {
      complaints.add(fmt::format("edge {} joins segments {} and {}", i, from, to),
                     "different micro-batches pass them", "");
    }
    if (!seen.insert({e.from, e.to}).second) {
      complaints.add(fmt::format("edge {} repeats the edge from segment {} to {}", i, from, to), "",
                     "Give one edge with the bytes of both.");
    }
  }
}

/// The members have to exist, once each, and see the same micro-batches.
void check_interaction(const PipelineGraph& graph, std::size_t i, Complaints& complaints) {
  const Interaction& x = graph.interactions[i];
  if (x.every < 1 || !is_cost(x.cost) || x.members.empty()) {
    complaints.add(fmt::format("interaction {} of {} segments, every {} micro-batches, cost {}", i,
                               x.members.size(), x.every, x.cost),
                   "", "Give members, at least one micro-batch and a cost of 0 or more.");
  }
  if (has_repeats(x.members)) {
    complaints.add(fmt::format("interaction {} names a segment twice", i), "", "Name each once.");
  }
  const Segment* first = nullptr;
  for (const SegmentId member : x.members) {
    const Segment* segment = graph.segments.contains(member) ? &graph.segments[member] : nullptr;
    if (first == nullptr) first = segment;
    if (segment == nullptr || !same_micro_batches(*segment, *first)) {
      complaints.add(fmt::format("interaction {} has the member {}", i, member.value()),
                     "no such segment, or other micro-batches pass it", "");
    }
  }
}

void check_ties(const PipelineGraph& graph, Complaints& complaints) {
  for (const std::vector<SegmentId>& set : graph.tied) {
    if (set.size() < 2 || has_repeats(set)) {
      complaints.add(fmt::format("a tied set of {} segments", set.size()),
                     "weights are tied between two or more different ones", "");
    }
    for (const SegmentId segment : set) {
      if (graph.segments.contains(segment)) continue;
      complaints.add(fmt::format("tied weights of segment {}", segment.value()), "no such segment",
                     "");
    }
  }
}

void check_scales(const PipelineGraph& graph, Complaints& complaints) {
  const auto& scale = graph.micro_batch_scale;
  if (!scale.empty() && scale.size() != static_cast<std::size_t>(graph.micro_batches)) {
    complaints.add(fmt::format("{} micro-batch scales for {} micro-batches", scale.size(),
                               graph.micro_batches),
                   "", "Give one each, or none.");
  }
  if (!is_cost(graph.latency) || !is_cost(graph.fused_cost_factor) ||
      !std::all_of(scale.begin(), scale.end(), is_cost)) {
    complaints.add(fmt::format("latency {}, fused factor {}, or a micro-batch scale", graph.latency,
                               graph.fused_cost_factor),
                   "not a number from 0 to 1e15", "");
  }
}

/// Throws where the topological order lacks segments. Every segment that is left has an input that
/// is left too, so walking back over these inputs comes round, and the message names that circle.
void check_cycles(const PipelineGraph& graph) {
  const std::vector<SegmentId> order = topological_order(graph);
  if (order.size() == graph.segments.size()) return;
  std::set<SegmentId> left(graph.segments.ids().begin(), graph.segments.ids().end());
  for (const SegmentId segment : order) left.erase(segment);
  std::vector<SegmentId> walk{*left.begin()};
  while (std::count(walk.begin(), walk.end(), walk.back()) == 1) {
    const auto input = std::find_if(graph.edges.begin(), graph.edges.end(), [&](const Edge& edge) {
      return edge.to == walk.back() && left.contains(edge.from);
    });
    walk.push_back(input->from);
  }
  walk.erase(walk.begin(), std::find(walk.begin(), walk.end(), walk.back()));
  std::vector<int> numbers;
  for (const SegmentId segment : walk) numbers.insert(numbers.begin(), segment.value());
  throw UserError("the graph's edges form a cycle",
                  fmt::format("segments {}", fmt::join(numbers, " -> ")),
                  "Remove one of the edges.");
}

}  // namespace

double PipelineGraph::segment_work(SegmentId segment) const {
  const Segment& s = segments[segment];
  double passing = s.micro_batches;
  if (!micro_batch_scale.empty()) {
    const auto first = micro_batch_scale.begin() + s.first_micro_batch.value();
    passing = std::accumulate(first, first + s.micro_batches, 0.0);
  }
  return passing * (s.forward + s.input_gradient + s.weight_gradient);
}

std::vector<double> PipelineGraph::rank_work() const {
  std::vector<double> work(ranks, 0);
  for (const SegmentId s : segments.ids()) work[segments[s].rank] += segment_work(s);
  return work;
}

double PipelineGraph::weight_copies() const {
  std::set<int> distinct;
  for (const Segment& segment : segments) distinct.insert(segment.weights);
  return static_cast<double>(segments.size()) / static_cast<double>(distinct.size());
}

/// Interactions are only looked at where segments and edges are right, as they refer to both.
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

/// Kahn's algorithm: takes away every segment without an unmet input, again and again. The segments
/// of a cycle, and those behind it, are never taken.
std::vector<SegmentId> topological_order(const PipelineGraph& graph) {
  const std::size_t count = graph.segments.size();
  IdVector<SegmentId, int> unmet(count, 0);
  for (const Edge& edge : graph.edges) ++unmet[edge.to];
  const GroupedLists<SegmentId> consumers(count, [&](auto insert) {
    for (const Edge& edge : graph.edges) insert(edge.from.value(), edge.to);
  });
  std::priority_queue<SegmentId, std::vector<SegmentId>, std::greater<>> ready;
  for (const SegmentId segment : unmet.ids()) {
    if (unmet[segment] == 0) ready.push(segment);
  }
  std::vector<SegmentId> order;
  while (!ready.empty()) {
    const SegmentId segment = ready.top();
    ready.pop();
    order.push_back(segment);
    for (const SegmentId consumer : consumers.of(segment.value())) {
      if (--unmet[consumer] == 0) ready.push(consumer);
    }
  }
  return order;
}

}  // namespace heteroperf
