// V4, V6 and V8: what ranks exchange. Messages are matched channel by channel, because a channel
// keeps its order: the n-th receive gets the n-th send, whatever either of them is meant to be.
// Collectives need one order on all their members; the members are streams of a TokenMachine, and
// orders that contradict each other leave it standing. Reductions and steps are looked at rank by
// rank.

#include <fmt/format.h>

#include <algorithm>

#include "runners/schedule/check/program_index.hpp"

namespace heteroperf {
namespace {

constexpr std::int32_t absent = ProgramIndex::absent;

/// V4. First edge by edge, whether each message has both ends; then program by program, groups and
/// the order within channels.
class MessageCheck {
 public:
  MessageCheck(const ProgramIndex& index, Findings& findings)
      : index_(index),
        tasks_(index.numbers().tasks),
        messages_(index.numbers().messages),
        graph_(index.graph()),
        findings_(findings) {}

  void run() {
    for (const EdgeId edge : graph_.edges.ids()) {
      if (messages_.crosses(edge)) check_edge(edge);
    }
    for (int rank = 0; rank < graph_.ranks; ++rank) check_program(rank);
  }

 private:
  using Step = ProgramSteps::Step;

  void fail(int rank, std::int32_t at, std::string_view why) {
    findings_.fail(Check::matched, index_.schedule(), {rank, at}, why);
  }

  /// Every slot of an edge needs an activation, and a gradient where one flows back.
  void check_edge(EdgeId e) {
    const Edge& edge = graph_.edges[e];
    for (std::int32_t slot = tasks_.first_slot(edge.from); slot < tasks_.first_slot(edge.from + 1);
         ++slot) {
      ProgramIndex::MessagePlaces places = index_.message(messages_.of(e, slot));
      check_ends(e, slot, Op::send_act, places[Op::send_act], places[Op::recv_act]);
      if (!edge.gradient) continue;
      check_ends(e, slot, Op::send_grad, places[Op::send_grad], places[Op::recv_grad]);
    }
  }

  /// Names the end that is there, or the message where both are missing.
  void check_ends(EdgeId e, std::int32_t slot, Op op, std::int32_t send, std::int32_t receive) {
    if (send != absent && receive != absent) return;
    const Edge& edge = graph_.edges[e];
    const bool gradient = carries_gradient(op);
    const int from = messages_.rank_from(e), to = messages_.rank_to(e);
    const int source = gradient ? to : from, target = gradient ? from : to;
    if (send != absent) return fail(source, send, "nobody receives it");
    if (receive != absent) return fail(target, receive, "nobody sends it");
    if (!findings_.fail(Check::matched)) return;
    Instruction message = tasks_.instruction(op, slot);
    message.segment = gradient ? edge.to : edge.from;
    message.peer = target;
    findings_.add(fmt::format("{} is missing", to_text(message)),
                  fmt::format("rank {} has to send it to rank {}", source, target));
  }

  void check_program(int rank) {
    const std::vector<Instruction>& program = index_.schedule().programs[rank];
    std::int32_t in_group = 0;
    groups_.clear();
    for (std::int32_t at = 0; at < static_cast<std::int32_t>(program.size()); ++at) {
      const Instruction& i = program[at];
      const bool goes_on = at > 0 && i.group >= 0 && program[at - 1].group == i.group;
      in_group = goes_on ? in_group + 1 : 1;
      if (i.group >= 0) check_group(rank, at, i, goes_on, in_group);
      if (is_message(i.op)) check_order(i, next_message());
    }
    check_pieces(rank);
  }

  /// The steps hold all messages in the order in which the programs are walked.
  const Step& next_message() {
    while (!is_message(index_.steps().all()[next_step_].op)) ++next_step_;
    return index_.steps().all()[next_step_++];
  }

  /// Counts the messages of a group and remembers where it begins.
  void check_group(int rank, std::int32_t at, const Instruction& i, bool goes_on,
                   std::int32_t in_group) {
    if (!is_message(i.op)) return fail(rank, at, "in a group, but no message");
    if (in_group == most_group_messages + 1) {
      fail(rank, at,
           fmt::format("group {} has more than {} messages", i.group, most_group_messages));
    }
    if (!goes_on) groups_.push_back({i.group, at});
  }

  /// A group that begins twice in a program is torn apart.
  void check_pieces(int rank) {
    std::sort(groups_.begin(), groups_.end());
    for (std::size_t k = 1; k < groups_.size(); ++k) {
      if (groups_[k].first != groups_[k - 1].first) continue;
      fail(rank, groups_[k].second, fmt::format("group {} is not in one piece", groups_[k].first));
    }
  }

  /// Compares a message with the one that its channel brings at this point.
  void check_order(const Instruction& i, const Step& step) {
    if (step.message < 0) return;
    const auto [rank, at] = step.place;
    if (is_receive(i.op) && step.partner < 0) {
      fail(rank, at, "its channel has fewer sends than receives");
    } else if (is_receive(i.op) && index_.steps().all()[step.partner].message != step.message) {
      fail(rank, at, "the sends of its channel stand in another order");
    }
    const bool numbered = i.sequence >= 0 || index_.executable();
    if (numbered && i.sequence != step.ordinal) {
      fail(rank, at,
           fmt::format("has sequence number {}, but place {} in its channel", i.sequence,
                       step.ordinal));
    }
  }

  const ProgramIndex& index_;
  const TaskTable& tasks_;
  const MessageIndex& messages_;
  const PipelineGraph& graph_;
  Findings& findings_;
  std::size_t next_step_ = 0;
  std::vector<std::pair<std::int32_t, std::int32_t>> groups_;  // number, place of its beginning
};

/// Both kinds of reductions of gradients over ranks.
bool is_reduction(Op op) { return op == Op::reduce_grad || op == Op::reduce_tied; }

/// Checks the reductions and steps of one rank after the other.
class StepCheck {
 public:
  StepCheck(const ProgramIndex& index, Findings& findings)
      : index_(index),
        graph_(index.graph()),
        findings_(findings),
        reduced_(graph_.segments.size(), absent),
        tied_(graph_.segments.size(), 0) {
    const CollectiveIndex& collectives = index.numbers().collectives;
    for (const SegmentId s : graph_.segments.ids()) {
      const auto copies = collectives.first_copies(collectives.weights_of(s));
      first_copy_.push_back(
          *std::ranges::lower_bound(copies, graph_.segments[s].rank, {},
                                    [&](SegmentId copy) { return graph_.segments[copy].rank; }));
    }
  }

  void run(bool reductions, bool steps) {
    for (int rank = 0; rank < graph_.ranks; ++rank) walk(rank, steps);
    if (reductions) check_reduced();
  }

 private:
  /// Goes over a program and hands its gradients and reductions to visit().
  void walk(int rank, bool steps) {
    const std::vector<Instruction>& program = index_.schedule().programs[rank];
    std::int32_t step = absent;
    for (std::int32_t at = 0; at < static_cast<std::int32_t>(program.size()); ++at) {
      const Instruction& i = program[at];
      const auto fail = [&](const char* why) {
        findings_.fail(Check::stepped, index_.schedule(), {rank, at}, why);
      };
      if (i.op == Op::opt_step) {
        if (step != absent) fail("the rank steps twice");
        step = at;
      } else if (is_gradient(i.op) || is_reduction(i.op)) {
        if (step != absent) fail("comes after the step");
        if (graph_.segments.contains(i.segment) && graph_.segments[i.segment].rank == rank) {
          visit(at, i, reduced_[first_copy_[i.segment]], fail);
        } else if (is_reduction(i.op)) {
          fail("the rank has no such weights");
        }
      }
    }
    if (steps && step == absent && findings_.fail(Check::stepped)) {
      findings_.add(fmt::format("OPT_STEP is missing on rank {}", rank), "every rank steps");
    }
  }

  /// `reduced` is the place at which these weights were reduced, or absent.
  template <class Fail>
  void visit(std::int32_t at, const Instruction& i, std::int32_t& reduced, Fail fail) {
    if (is_gradient(i.op)) {
      if (reduced != absent) fail("its weights are reduced before");
    } else if (i.op == Op::reduce_grad) {
      if (reduced != absent) fail("these weights are reduced twice");
      reduced = at;
    } else {
      ++tied_[i.segment];
      if (reduced == absent) fail("its weights are not reduced before");
    }
  }

  /// Looks for reductions that no program has, or too often.
  void check_reduced() {
    IdVector<SegmentId, int> sets(graph_.segments.size(), 0);
    for (const std::vector<SegmentId>& set : graph_.tied) {
      for (const SegmentId segment : set) ++sets[segment];
    }
    for (const SegmentId s : graph_.segments.ids()) {
      const bool missing = first_copy_[s] == s && reduced_[s] == absent;
      if (missing && findings_.fail(Check::stepped)) {
        findings_.add(fmt::format("REDUCE_GRAD {} is missing", s.value()),
                      fmt::format("rank {} has its weights", graph_.segments[s].rank));
      }
      if (tied_[s] != sets[s] && findings_.fail(Check::stepped)) {
        findings_.add(fmt::format("REDUCE_TIED {} stands there {} times", s.value(), tied_[s]),
                      fmt::format("it is tied {} times", sets[s]));
      }
    }
  }

  const ProgramIndex& index_;
  const PipelineGraph& graph_;
  Findings& findings_;
  IdVector<SegmentId, std::int32_t> reduced_;  // [first copy]: place of its REDUCE_GRAD
  IdVector<SegmentId, int> tied_;              // its REDUCE_TIED so far
  IdVector<SegmentId, SegmentId> first_copy_;  // the first on its rank with these weights
};

}  // namespace

void check_messages(const ProgramIndex& index, Findings& findings) {
  if (index.lowered()) MessageCheck(index, findings).run();
}

void check_collectives(const ProgramIndex& index, Findings& findings) {
  if (!index.lowered()) return;
  const Schedule& schedule = index.schedule();
  const CollectiveIndex& collectives = index.numbers().collectives;
  std::vector<std::int32_t> members(collectives.size(), 0);
  TokenMachine machine(schedule.graph.ranks, collectives.size());
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
    CollectiveIndex::Reader reader(collectives, rank);
    std::int32_t before = -1;
    const std::vector<Instruction>& program = schedule.programs[rank];
    for (std::int32_t at = 0; at < static_cast<std::int32_t>(program.size()); ++at) {
      if (!CollectiveIndex::is_collective(program[at].op)) continue;
      const std::int32_t collective = reader.find(program[at]);
      if (collective < 0) {
        findings.fail(Check::collectives, schedule, {rank, at},
                      "the graph has no such collective at this rank");
      } else if (collective != before || program[at].op != Op::reduce_tied) {
        machine.append(rank, collective, {rank, at});
        ++members[collective];
      }
      before = collective;
    }
  }
  for (std::int32_t c = 0; c < collectives.size(); ++c) {
    const auto expected = static_cast<std::int32_t>(collectives.ranks(c).size());
    // V1 and V8 look for collectives that are missing altogether.
    if (members[c] == expected || members[c] == 0) continue;
    if (!findings.fail(Check::collectives)) continue;
    findings.add(fmt::format("collective {} stands there {} times", c, members[c]),
                 fmt::format("it has {} members", expected));
  }
  if (machine.run() || !findings.fail(Check::collectives)) return;
  std::string places;
  for (const TokenMachine::Standing& s : machine.shortest_cycle()) {
    places +=
        (places.empty() ? "" : "; ") + place_in_program(schedule, s.place.rank, s.place.index);
  }
  findings.add("collectives stand in different orders on their ranks", places);
}

void check_steps(const ProgramIndex& index, Findings& findings) {
  if (!index.lowered()) return;
  bool reductions = index.executable();
  for (const std::vector<Instruction>& program : index.schedule().programs) {
    reductions = reductions || std::any_of(program.begin(), program.end(),
                                           [](const Instruction& i) { return is_reduction(i.op); });
  }
  StepCheck(index, findings).run(reductions, index.executable());
}

}  // namespace heteroperf
