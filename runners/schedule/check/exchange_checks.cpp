#include "runners/schedule/check/exchange_checks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runners/schedule/check/token_machine.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {
namespace {

constexpr std::int32_t absent = ProgramIndex::absent;

class MessageCheck {
 public:
  MessageCheck(const ProgramIndex& index, Findings& findings)
      : index_(index), graph_(index.tasks().graph()), findings_(findings) {}

  void run() {
    for (int edge = 0; edge < static_cast<int>(graph_.edges.size()); ++edge) {
      if (index_.messages().crosses(edge)) check_edge(edge);
    }
    gather_sends();
    for (int rank = 0; rank < graph_.ranks; ++rank) check_program(rank);
  }

 private:
  void fail(int rank, std::int32_t at, const std::string& why) {
    if (!findings_.fail(Check::matched)) return;
    findings_.add(place_in_program(index_.schedule(), rank, at), why);
  }

  void check_edge(int e) {
    const Edge& edge = graph_.edges[e];
    const TaskTable& tasks = index_.tasks();
    for (std::int32_t slot = tasks.first_slot(edge.from); slot < tasks.first_slot(edge.from + 1);
         ++slot) {
      const auto& places = index_.message(index_.messages().of(e, slot));
      check_ends(e, slot, Op::send_act, places.send_act, places.receive_act);
      if (!edge.gradient) continue;
      check_ends(e, slot, Op::send_grad, places.send_grad, places.receive_grad);
    }
  }

  void check_ends(int e, std::int32_t slot, Op op, std::int32_t send, std::int32_t receive) {
    if (send != absent && receive != absent) return;
    const Edge& edge = graph_.edges[e];
    const bool gradient = carries_gradient(op);
    const int from = index_.messages().rank_from(e), to = index_.messages().rank_to(e);
    const int source = gradient ? to : from, target = gradient ? from : to;
    if (send != absent) return fail(source, send, "nobody receives it");
    if (receive != absent) return fail(target, receive, "nobody sends it");
    if (!findings_.fail(Check::matched)) return;
    Instruction message =
        compute(op, gradient ? edge.to : edge.from, index_.tasks().micro_batch_of(slot),
                index_.tasks().part_of(slot));
    message.peer = target;
    findings_.add(fmt::format("{} is missing", to_text(message)),
                  fmt::format("rank {} has to send it to rank {}", source, target));
  }

  /// The sends of every channel, in order.
  void gather_sends() {
    first_.assign(static_cast<std::size_t>(index_.messages().channels()) + 1, 0);
    for (const bool count : {true, false}) {
      for (int rank = 0; rank < graph_.ranks; ++rank) {
        for (const Instruction& i : index_.schedule().programs[rank]) {
          if (!is_send(i.op)) continue;
          const std::int32_t message = index_.messages().find(i, rank);
          if (message < 0) continue;
          const int channel = index_.messages().channel(i.edge, carries_gradient(i.op));
          count ? void(++first_[channel + 1]) : void(sends_[next_[channel]++] = message);
        }
      }
      if (!count) continue;
      for (std::size_t c = 1; c < first_.size(); ++c) first_[c] += first_[c - 1];
      next_.assign(first_.begin(), first_.end() - 1);
      sends_.resize(static_cast<std::size_t>(first_.back()));
    }
    next_.assign(first_.begin(), first_.end() - 1);
    place_.assign(next_.size(), 0);
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
      if (is_message(i.op)) check_order(rank, at, i);
    }
    check_pieces(rank);
  }

  void check_group(int rank, std::int32_t at, const Instruction& i, bool goes_on,
                   std::int32_t in_group) {
    if (!is_message(i.op)) return fail(rank, at, "in a group, but no message");
    if (in_group == most_group_messages + 1) {
      fail(rank, at,
           fmt::format("group {} has more than {} messages", i.group, most_group_messages));
    }
    if (!goes_on) groups_.push_back({i.group, at});
  }

  void check_pieces(int rank) {
    std::sort(groups_.begin(), groups_.end());
    for (std::size_t k = 1; k < groups_.size(); ++k) {
      if (groups_[k].first != groups_[k - 1].first) continue;
      fail(rank, groups_[k].second, fmt::format("group {} is not in one piece", groups_[k].first));
    }
  }

  void check_order(int rank, std::int32_t at, const Instruction& i) {
    const std::int32_t message = index_.messages().find(i, rank);
    if (message < 0) return;
    const int channel = index_.messages().channel(i.edge, carries_gradient(i.op));
    std::int32_t place = 0;
    if (is_send(i.op)) {
      place = place_[channel]++;
    } else {
      place = next_[channel]++ - first_[channel];
      const std::int32_t k = first_[channel] + place;
      if (k >= first_[channel + 1]) {
        fail(rank, at, "its channel has fewer sends than receives");
      } else if (sends_[k] != message) {
        fail(rank, at, "the sends of its channel stand in another order");
      }
    }
    const bool numbered = i.sequence >= 0 || index_.executable();
    if (numbered && i.sequence != place) {
      fail(rank, at,
           fmt::format("has sequence number {}, but place {} in its channel", i.sequence, place));
    }
  }

  const ProgramIndex& index_;
  const PipelineGraph& graph_;
  Findings& findings_;
  std::vector<std::int32_t> first_, next_, place_;             // [channel]
  std::vector<std::int32_t> sends_;                            // messages, by channel, in order
  std::vector<std::pair<std::int32_t, std::int32_t>> groups_;  // number, where it begins
};

bool is_reduction(Op op) { return op == Op::reduce_grad || op == Op::reduce_tied; }

/// One rank's reductions and steps.
class StepCheck {
 public:
  StepCheck(const ProgramIndex& index, Findings& findings)
      : index_(index),
        graph_(index.tasks().graph()),
        findings_(findings),
        reduced_(graph_.segments.size(), absent),
        tied_(graph_.segments.size(), 0) {
    for (std::size_t s = 0; s < graph_.segments.size(); ++s) {
      representative_.push_back(static_cast<int>(s));
    }
    find_representatives();
  }

  void run(bool reductions, bool steps) {
    for (int rank = 0; rank < graph_.ranks; ++rank) {
      step_ = absent;
      walk(rank);
      if (steps && step_ == absent && findings_.fail(Check::stepped)) {
        findings_.add(fmt::format("OPT_STEP is missing on rank {}", rank), "every rank steps");
      }
    }
    if (reductions) check_reduced();
  }

 private:
  void fail(int rank, std::int32_t at, const char* why) {
    if (!findings_.fail(Check::stepped)) return;
    findings_.add(place_in_program(index_.schedule(), rank, at), why);
  }

  /// The first segment of each rank with the same weights.
  void find_representatives() {
    std::vector<std::pair<std::pair<int, int>, int>> copies;
    for (std::size_t s = 0; s < graph_.segments.size(); ++s) {
      const int segment = static_cast<int>(s);
      copies.push_back(
          {{index_.collectives().weights_of(segment), graph_.segments[s].rank}, segment});
    }
    std::sort(copies.begin(), copies.end());
    for (std::size_t k = 1; k < copies.size(); ++k) {
      if (copies[k].first != copies[k - 1].first) continue;
      representative_[copies[k].second] = representative_[copies[k - 1].second];
    }
  }

  void walk(int rank) {
    const std::vector<Instruction>& program = index_.schedule().programs[rank];
    for (std::int32_t at = 0; at < static_cast<std::int32_t>(program.size()); ++at) {
      const Instruction& i = program[at];
      if (i.op == Op::opt_step) {
        if (step_ != absent) fail(rank, at, "the rank steps twice");
        step_ = at;
      } else if (is_gradient(i.op) || is_reduction(i.op)) {
        if (step_ != absent) fail(rank, at, "comes after the step");
        if (i.segment < 0 || i.segment >= static_cast<int>(graph_.segments.size()) ||
            graph_.segments[i.segment].rank != rank) {
          if (is_reduction(i.op)) fail(rank, at, "the rank has no such weights");
          continue;
        }
        visit(rank, at, i, reduced_[representative_[i.segment]]);
      }
    }
  }

  void visit(int rank, std::int32_t at, const Instruction& i, std::int32_t& reduced) {
    if (is_gradient(i.op)) {
      if (reduced != absent) fail(rank, at, "its weights are reduced before");
    } else if (i.op == Op::reduce_grad) {
      if (reduced != absent) fail(rank, at, "these weights are reduced twice");
      reduced = at;
    } else {
      ++tied_[i.segment];
      if (reduced == absent) fail(rank, at, "its weights are not reduced before");
    }
  }

  void check_reduced() {
    std::vector<int> sets(graph_.segments.size(), 0);
    for (std::vector<int> set : graph_.tied) {
      std::sort(set.begin(), set.end());
      set.erase(std::unique(set.begin(), set.end()), set.end());
      for (const int s : set) ++sets[s];
    }
    for (std::size_t s = 0; s < graph_.segments.size(); ++s) {
      const bool missing = representative_[s] == static_cast<int>(s) && reduced_[s] == absent;
      if (missing && findings_.fail(Check::stepped)) {
        findings_.add(fmt::format("REDUCE_GRAD {} is missing", s),
                      fmt::format("rank {} has its weights", graph_.segments[s].rank));
      }
      if (tied_[s] != sets[s] && findings_.fail(Check::stepped)) {
        findings_.add(fmt::format("REDUCE_TIED {} stands there {} times", s, tied_[s]),
                      fmt::format("it is tied {} times", sets[s]));
      }
    }
  }

  const ProgramIndex& index_;
  const PipelineGraph& graph_;
  Findings& findings_;
  std::vector<std::int32_t> reduced_;  // [segment, the first of its rank with these weights]
  std::vector<int> tied_;              // [segment]
  std::vector<int> representative_;    // [segment]
  std::int32_t step_ = absent;
};

}  // namespace

void check_messages(const ProgramIndex& index, Findings& findings) {
  if (index.lowered()) MessageCheck(index, findings).run();
}

void check_collectives(const ProgramIndex& index, Findings& findings) {
  if (!index.lowered()) return;
  const Schedule& schedule = index.schedule();
  const CollectiveIndex& collectives = index.collectives();
  std::vector<std::int32_t> members(static_cast<std::size_t>(collectives.size()), 0);
  TokenMachine machine(schedule.graph.ranks, collectives.size());
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
    CollectiveIndex::Reader reader(collectives, rank);
    std::int32_t before = -1;
    const std::vector<Instruction>& program = schedule.programs[rank];
    for (std::int32_t at = 0; at < static_cast<std::int32_t>(program.size()); ++at) {
      if (!CollectiveIndex::names_one(program[at].op)) continue;
      const std::int32_t collective = reader.find(program[at]);
      if (collective < 0) {
        if (findings.fail(Check::collectives)) {
          findings.add(place_in_program(schedule, rank, at),
                       "the graph has no such collective at this rank");
        }
      } else if (collective != before || program[at].op != Op::reduce_tied) {
        machine.append(rank, collective, {rank, at});
        ++members[collective];
      }
      before = collective;
    }
  }
  for (std::int32_t c = 0; c < collectives.size(); ++c) {
    const auto expected = static_cast<std::int32_t>(collectives.ranks(c).size());
    // None at all is what V1 and V8 look at.
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
