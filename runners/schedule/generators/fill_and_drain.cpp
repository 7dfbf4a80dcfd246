// gpipe and 1f1b. The pipeline fills with forwards, and gradients drain it; in between 1f1b does
// one forward and one gradient in turn, so that a rank holds only as many micro-batches as it takes
// one to come back. Both are defined here not only for chains but for every graph whose ranks feed
// each other in one direction: a rank then does all its segments of a micro-batch in topological
// order.

#include <fmt/format.h>

#include <utility>

#include "metrics/base/error.hpp"
#include "runners/schedule/generators/makers.hpp"
#include "runners/schedule/ir/graph_index.hpp"

namespace heteroperf {
namespace {

constexpr RequestRules gpipe{"gpipe"};
constexpr RequestRules one_f_one_b{"1f1b"};

/// The graph of ranks that is left when the segments of each rank are joined. `order` goes from
/// sources to sinks.
struct RankGraph {
  std::vector<std::vector<int>> next;  // [rank]
  std::vector<int> order;
};

/// The text "rank 1 -> rank 2 -> rank 1" of a circle, given that only ranks in a circle, or fed
/// from one, have unmet inputs.
std::string circle(const PipelineGraph& graph, const std::vector<int>& unmet) {
  std::vector<int> before(graph.ranks, -1);
  for (const Edge& edge : graph.edges) {
    const int from = graph.segments[edge.from].rank, to = graph.segments[edge.to].rank;
    if (from != to && unmet[from] > 0) before[to] = from;
  }
  int rank = 0;
  while (unmet[rank] == 0) ++rank;
  for (int i = 0; i < graph.ranks; ++i) rank = before[rank];  // this surely ends within the circle
  std::string text = fmt::format("rank {}", rank);
  int at = rank;
  do {
    at = before[at];
    text = fmt::format("rank {} -> ", at) + text;
  } while (at != rank && text.size() < 200);
  return text;
}

/// Joins the segments of each rank. Throws where the ranks feed each other in a circle.
RankGraph contract(const PipelineGraph& graph, const RequestRules& rules) {
  RankGraph ranks{std::vector<std::vector<int>>(graph.ranks), {}};
  std::vector<int> unmet(graph.ranks, 0);
  for (const Edge& edge : graph.edges) {
    const int from = graph.segments[edge.from].rank, to = graph.segments[edge.to].rank;
    if (from == to) continue;
    ranks.next[from].push_back(to);
    ++unmet[to];
  }
  for (int rank = 0; rank < graph.ranks; ++rank) {
    if (unmet[rank] == 0) ranks.order.push_back(rank);
  }
  for (std::size_t i = 0; i < ranks.order.size(); ++i) {
    for (const int to : ranks.next[ranks.order[i]]) {
      if (--unmet[to] == 0) ranks.order.push_back(to);
    }
  }
  if (std::ssize(ranks.order) == graph.ranks) return ranks;
  throw UserError(fmt::format("{} does not fit the graph's placement", rules.name),
                  fmt::format("its ranks feed each other: {}", circle(graph, unmet)),
                  "Use auto, or interleaved-1f1b for a chain that goes round the ranks.");
}

/// The forwards that each rank does before its first gradient: the longest path of ranks to a last
/// one. A rank with members of an interaction over sets of micro-batches waits for a whole set, so
/// it and the ranks before it start that much earlier.
std::vector<int> warm_ups(const PipelineGraph& graph, const RankGraph& ranks) {
  std::vector<int> forwards(graph.ranks, 0);
  for (const Interaction& interaction : graph.interactions) {
    const int ahead = std::min(interaction.every, graph.micro_batches) - 1;
    for (const SegmentId member : interaction.members) {
      int& of_rank = forwards[graph.segments[member].rank];
      of_rank = std::max(of_rank, ahead);
    }
  }
  for (auto rank = ranks.order.rbegin(); rank != ranks.order.rend(); ++rank) {
    for (const int to : ranks.next[*rank]) {
      forwards[*rank] = std::max(forwards[*rank], forwards[to] + 1);
    }
  }
  return forwards;
}

/// The segments of every rank in topological order.
std::vector<std::vector<SegmentId>> segments_by_rank(const PipelineGraph& graph) {
  std::vector<std::vector<SegmentId>> segments(graph.ranks);
  for (const SegmentId segment : topological_order(graph)) {
    segments[graph.segments[segment].rank].push_back(segment);
  }
  return segments;
}

/// Writes a rank's program, a micro-batch of all its segments at a time.
class RankProgram {
 public:
  RankProgram(const TaskTable& tasks, const std::vector<SegmentId>& segments,
              std::vector<Instruction>& program)
      : tasks_(tasks), graph_(tasks.graph()), segments_(segments), program_(program) {
    for (const SegmentId segment : segments_) {
      for (const int interaction : tasks_.interactions_of(segment)) {
        const auto known = std::ranges::find(last_member_, interaction, &Member::interaction);
        if (known != last_member_.end()) {
          known->segment = segment;
        } else {
          last_member_.push_back({interaction, segment});
        }
      }
    }
  }

  /// Writes the forwards of a micro-batch, each INTERACT behind the last one of its set.
  void forward(MicroBatchId micro_batch) {
    for (const SegmentId segment : segments_) {
      if (!graph_.passes(segment, micro_batch)) continue;
      program_.push_back(compute(Op::forward, segment, micro_batch));
      for (const Member& member : last_member_) {
        if (member.segment == segment && ends_set(member, micro_batch)) {
          interact(member, micro_batch);
        }
      }
    }
  }

  /// Writes the gradients of a micro-batch in the reverse order.
  void backward(MicroBatchId micro_batch) {
    for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
      if (graph_.passes(*segment, micro_batch)) {
        program_.push_back(compute(Op::backward, *segment, micro_batch));
      }
    }
  }

 private:
  /// An interaction, and the last of the rank's members in topological order.
  struct Member {
    int interaction;
    SegmentId segment;
  };

  bool ends_set(const Member& member, MicroBatchId micro_batch) const {
    const MicroBatchId next = micro_batch + 1;
    return !graph_.passes(member.segment, next) ||
           tasks_.interaction_set(member.interaction, next) == next;
  }

  void interact(const Member& member, MicroBatchId micro_batch) {
    program_.push_back({.op = Op::interact,
                        .segment = member.segment,
                        .micro_batch = tasks_.interaction_set(member.interaction, micro_batch),
                        .edge = EdgeId(member.interaction)});
  }

  const TaskTable& tasks_;
  const PipelineGraph& graph_;
  const std::vector<SegmentId>& segments_;
  std::vector<Instruction>& program_;
  std::vector<Member> last_member_;
};

/// The request's chain, or its graph, whose ranks have to feed each other in one direction.
PipelineGraph directed_graph(const ScheduleRequest& request, const RequestRules& rules) {
  const RequestSizes sizes = check_request(request, rules);
  if (!request.graph) return chain_for(request, rules, sizes, ChainPlacement::looped);
  PipelineGraph graph = *request.graph;
  graph.parts = sizes.parts;
  normalise(graph);
  return graph;
}

/// Writes every rank's program in the 1F1B rhythm with these warm-ups.
Schedule with_warm_up(const RequestRules& rules, PipelineGraph graph,
                      const std::vector<int>& warm_up) {
  const TaskTable tasks(graph);
  const std::vector<std::vector<SegmentId>> segments = segments_by_rank(graph);
  return compute_schedule(rules, 1, graph, [&](int r, auto& program) {
    program.reserve(2 * segments[r].size() * graph.micro_batches);
    RankProgram writer(tasks, segments[r], program);
    one_forward_one_backward(
        graph.micro_batches, warm_up[r], [&](int i) { writer.forward(MicroBatchId(i)); },
        [&](int i) { writer.backward(MicroBatchId(i)); });
  });
}

}  // namespace

/// Does all forwards, then all gradients. Source: arXiv 1811.06965. On a graph, a rank does all its
/// segments of a micro-batch in topological order, gradients in the reverse order.
Schedule make_gpipe(const ScheduleRequest& request) {
  PipelineGraph graph = directed_graph(request, gpipe);
  contract(graph, gpipe);
  const std::vector<int> warm_up(graph.ranks, graph.micro_batches);
  return with_warm_up(gpipe, std::move(graph), warm_up);
}

/// Does p−r−1 forwards as warm-up, then forward and gradient in turn. Source: arXiv 2006.09503
/// §2.2. On a graph, p−r−1 is the longest path of ranks from r to a last rank, and a rank does all
/// its segments of a micro-batch as in gpipe. An INTERACT stands directly behind the last forward
/// of its set on each member's rank; warm-up is raised by (set size − 1) on members' ranks, and
/// before them, as no gradient of the set may be asked for earlier.
Schedule make_1f1b(const ScheduleRequest& request) {
  PipelineGraph graph = directed_graph(request, one_f_one_b);
  const std::vector<int> warm_up = warm_ups(graph, contract(graph, one_f_one_b));
  return with_warm_up(one_f_one_b, std::move(graph), warm_up);
}

}  // namespace heteroperf
