// V5: can the programs wait for each other for ever, and how much must a network help so that they
// do not?
//
// The programs run without times on a TokenMachine, each rank as far as it gets; what is left
// standing waits for ever. The n-th send of a channel meets its n-th receive. There is one machine
// for each level, from the strictest on, and messages of one rank's group are one step in all:
//  - rendezvous: each rank does one step after the other. A step ends when every step with which it
//    shares a message has begun, and all of them end together; so do the members of a collective.
//  - nccl: compute and the messages with each other rank run in streams of their own, each in
//    program order. A send waits for what it carries, compute for what it receives.
//  - buffered: sends never wait.
// A compute-only schedule has no messages yet. Its machine waits for the computations that make the
// values instead, as if all messages arrived at once.

#include <algorithm>
#include <array>

#include "runners/schedule/check/program_index.hpp"

namespace heteroperf {
namespace {

using Numbers = std::vector<std::int32_t>;

/// Forbids what never ends: a message without its other end, and a collective that a member rank
/// leaves out. `event_of` gives the event of a step, or −1 where the step ends all the same.
template <class EventOf>
void forbid_incomplete(const ProgramSteps& steps, const CollectiveIndex& collectives,
                       TokenMachine& machine, EventOf event_of) {
  Numbers named(collectives.size(), 0);
  for (std::size_t i = 0; i < steps.all().size(); ++i) {
    const ProgramSteps::Step& step = steps.all()[i];
    if (is_message(step.op)) {
      if (step.partner < 0 && event_of(i) >= 0) machine.forbid(event_of(i));
    } else if (steps.begins_run(i)) {
      ++named[step.subject];
    }
  }
  for (std::size_t i = 0; i < steps.all().size(); ++i) {
    const ProgramSteps::Step& step = steps.all()[i];
    if (is_message(step.op) || !steps.begins_run(i)) continue;
    const auto members = static_cast<std::int32_t>(collectives.ranks(step.subject).size());
    if (named[step.subject] < members) {
      machine.forbid(event_of(i));
      named[step.subject] = members;
    }
  }
}

/// Both ends of a message are one event, and so are all messages of both groups that they stand in.
TokenMachine rendezvous_machine(const ProgramIndex& index) {
  const ProgramSteps& steps = index.steps();
  const CollectiveIndex& collectives = index.numbers().collectives;
  UnionFind sets = steps.events(collectives);
  TokenMachine machine(index.graph().ranks, steps.runs());
  for (std::size_t i = 0; i < steps.all().size(); ++i) {
    const ProgramSteps::Step& step = steps.all()[i];
    if (steps.begins_run(i)) machine.append(step.place.rank, sets.find(step.run), step.place);
  }
  forbid_incomplete(steps, collectives, machine,
                    [&](std::size_t i) { return sets.find(steps.all()[i].run); });
  return machine;
}

/// The sends of a group are issued before its receives wait.
TokenMachine buffered_machine(const ProgramIndex& index) {
  const ProgramSteps& steps = index.steps();
  const CollectiveIndex& collectives = index.numbers().collectives;
  const auto count = static_cast<std::int32_t>(steps.all().size());
  UnionFind sets(count);
  Numbers first(collectives.size(), -1);
  TokenMachine machine(index.graph().ranks, count);
  for (std::int32_t i = 0; i < count; ++i) {
    const ProgramSteps::Step& step = steps.all()[i];
    if (is_message(step.op)) continue;
    if (first[step.subject] < 0) first[step.subject] = i;
    sets.unite(first[step.subject], i);
  }
  for (std::int32_t begin = 0, end = 0; begin < count; begin = end) {
    while (end < count && steps.all()[end].run == steps.all()[begin].run) ++end;
    for (const bool sends : {true, false}) {
      for (std::int32_t i = begin; i < end; ++i) {
        const ProgramSteps::Step& step = steps.all()[i];
        if (is_send(step.op) != sends || (!is_message(step.op) && i != begin)) continue;
        machine.append(step.place.rank, sets.find(i), step.place);
        if (is_receive(step.op) && step.partner >= 0) machine.require(i, step.partner);
      }
    }
  }
  forbid_incomplete(steps, collectives, machine, [&](std::size_t i) {
    return is_send(steps.all()[i].op) ? -1 : sets.find(static_cast<std::int32_t>(i));
  });
  return machine;
}

/// The events of the computations that make the forward value (0) and the gradient (1) of each
/// slot; where several do, the last one counts.
struct Makers {
  explicit Makers(std::int32_t slots) : event{Numbers(slots, -1), Numbers(slots, -1)} {}

  void note(Op op, std::int32_t slot, std::int32_t maker) {
    if (slot < 0) return;
    if (op == Op::forward) event[0][slot] = maker;
    if (makes_input_gradient(op)) event[1][slot] = maker;
  }

  std::array<Numbers, 2> event;
};

/// Level nccl: one stream per rank for compute and collectives, one per rank and other rank for
/// messages.
class NcclMachine {
 public:
  explicit NcclMachine(const ProgramIndex& index)
      : schedule_(index.schedule()),
        tasks_(index.numbers().tasks),
        messages_(index.numbers().messages),
        collectives_(index.numbers().collectives),
        steps_(index.steps()),
        sets_(steps_.events(collectives_)),
        makers_(tasks_.slots()),
        receivers_(messages_.size()) {}

  TokenMachine build() {
    number_pairs();
    number_events();
    const auto streams = schedule_.graph.ranks + 2 * static_cast<std::int32_t>(pairs_.size());
    TokenMachine machine(streams, events_);
    std::size_t step = 0;
    for (int rank = 0; rank < schedule_.graph.ranks; ++rank) append_rank(rank, step, machine);
    forbid_incomplete(steps_, collectives_, machine,
                      [&](std::size_t i) { return sets_.find(steps_.all()[i].run); });
    return machine;
  }

 private:
  std::pair<int, int> pair_of(EdgeId edge) const {
    return std::minmax({messages_.rank_from(edge), messages_.rank_to(edge)});
  }

  void number_pairs() {
    for (const EdgeId e : schedule_.graph.edges.ids()) {
      if (messages_.crosses(e)) pairs_.push_back(pair_of(e));
    }
    sort_unique(pairs_);
  }

  /// The stream of a rank for its messages with the rank at the other end of an edge.
  std::int32_t stream(int rank, EdgeId edge) const {
    const auto pair = pair_of(edge);
    const auto place = std::lower_bound(pairs_.begin(), pairs_.end(), pair) - pairs_.begin();
    return schedule_.graph.ranks + 2 * static_cast<std::int32_t>(place) + (rank == pair.second);
  }

  /// Runs have the first numbers, computations the next ones in the order of the programs.
  void number_events() {
    events_ = steps_.runs();
    for (const std::vector<Instruction>& program : schedule_.programs) {
      for (const Instruction& i : program) {
        if (is_compute(i.op)) makers_.note(i.op, tasks_.slot(i), events_++);
      }
    }
    for (const ProgramSteps::Step& step : steps_.all()) {
      if (!is_receive(step.op) || step.message < 0) continue;
      receivers_.event[carries_gradient(step.op)][step.message] = step.run;
    }
  }

  /// Appends the computations and steps of one rank in the order of its program.
  void append_rank(int rank, std::size_t& step, TokenMachine& machine) {
    const std::vector<Instruction>& program = schedule_.programs[rank];
    const std::vector<ProgramSteps::Step>& steps = steps_.all();
    for (std::int32_t index = 0; index < static_cast<std::int32_t>(program.size()); ++index) {
      const Instruction& i = program[index];
      if (is_compute(i.op)) append_compute(i, {rank, index}, machine);
      if (step == steps.size() || steps[step].place.rank != rank) continue;
      if (steps[step].place.index == index) append_step(step++, i, machine);
    }
  }

  /// A computation waits for the messages it receives, not for the place of the receives.
  void append_compute(const Instruction& i, TokenMachine::Place place, TokenMachine& machine) {
    const std::int32_t event = steps_.runs() + computes_++;
    machine.append(place.rank, event, place);
    const std::int32_t slot = tasks_.slot(i);
    if (slot < 0) return;
    const Numbers& received = receivers_.event[i.op != Op::forward];
    tasks_.for_each_input(i.op, slot, [&](std::int32_t, EdgeId edge) {
      const std::int32_t message = edge == EdgeId::none() ? -1 : messages_.of(edge, slot);
      if (message < 0 || received[message] < 0) return;
      machine.require(event, sets_.find(received[message]));
    });
  }

  /// A send also waits for the computation that makes its value.
  void append_step(std::size_t index, const Instruction& i, TokenMachine& machine) {
    const ProgramSteps::Step& step = steps_.all()[index];
    const std::int32_t event = sets_.find(step.run);
    if (!is_message(step.op)) {
      if (steps_.begins_run(index)) machine.append(step.place.rank, event, step.place);
      return;
    }
    if (step.message < 0) return;
    const std::int32_t peer_stream = stream(step.place.rank, i.edge);
    if (steps_.begins_run(index)) run_streams_.clear();
    if (std::find(run_streams_.begin(), run_streams_.end(), peer_stream) == run_streams_.end()) {
      run_streams_.push_back(peer_stream);
      machine.append(peer_stream, event, step.place);
    }
    if (!is_send(step.op)) return;
    const std::int32_t maker = makers_.event[carries_gradient(step.op)][tasks_.slot(i)];
    if (maker >= 0) machine.require(event, maker);
  }

  const Schedule& schedule_;
  const TaskTable& tasks_;
  const MessageIndex& messages_;
  const CollectiveIndex& collectives_;
  const ProgramSteps& steps_;
  UnionFind sets_;
  std::vector<std::pair<int, int>> pairs_;  // ranks that exchange messages, the smaller one first
  std::int32_t events_ = 0, computes_ = 0;
  Makers makers_, receivers_;  // by slot; by message, where the event is a run
  Numbers run_streams_;        // streams of the run at hand
};

/// The machine of a compute-only schedule: a fused pair is one event, and so is a set of an
/// interaction on its ranks.
class DependencyMachine {
 public:
  explicit DependencyMachine(const ProgramIndex& index)
      : schedule_(index.schedule()),
        tasks_(index.numbers().tasks),
        messages_(index.numbers().messages),
        collectives_(index.numbers().collectives),
        makers_(tasks_.slots()) {}

  TokenMachine build() {
    nobody_ = collectives_.size();
    for (const std::vector<Instruction>& program : schedule_.programs) number(program);
    TokenMachine machine(schedule_.graph.ranks, nobody_ + 1);
    machine.forbid(nobody_);
    next_ = collectives_.size();
    for (int rank = 0; rank < schedule_.graph.ranks; ++rank) append_rank(rank, machine);
    return machine;
  }

 private:
  /// The second of a fused pair is part of the event before it.
  static bool fused(const std::vector<Instruction>& program, std::size_t i) {
    return i > 0 && program[i - 1].fused_with_next && is_compute(program[i - 1].op);
  }

  /// Numbers the computations of a program and notes what they make.
  void number(const std::vector<Instruction>& program) {
    for (std::size_t k = 0; k < program.size(); ++k) {
      if (!is_compute(program[k].op)) continue;
      if (!fused(program, k)) ++nobody_;
      makers_.note(program[k].op, tasks_.slot(program[k]), nobody_ - 1);
    }
  }

  void append_rank(int rank, TokenMachine& machine) {
    CollectiveIndex::Reader reader(collectives_, rank);
    const std::vector<Instruction>& program = schedule_.programs[rank];
    for (std::size_t k = 0; k < program.size(); ++k) {
      const Instruction& i = program[k];
      const TokenMachine::Place place{rank, static_cast<std::int32_t>(k)};
      if (i.op == Op::interact) {
        const std::int32_t collective = reader.find(i);
        if (collective >= 0) machine.append(rank, collective, place);
      } else if (is_compute(i.op)) {
        if (!fused(program, k)) machine.append(rank, next_++, place);
        require_inputs(i, next_ - 1, machine);
      }
    }
  }

  void require_inputs(const Instruction& i, std::int32_t event, TokenMachine& machine) const {
    const std::int32_t slot = tasks_.slot(i);
    if (slot < 0) return;
    const Numbers& maker = makers_.event[i.op != Op::forward];
    tasks_.for_each_input(i.op, slot, [&](std::int32_t input, EdgeId edge) {
      if (edge == EdgeId::none() || !messages_.crosses(edge)) return;
      machine.require(event, maker[input] < 0 ? nobody_ : maker[input]);
    });
  }

  const Schedule& schedule_;
  const TaskTable& tasks_;
  const MessageIndex& messages_;
  const CollectiveIndex& collectives_;
  Makers makers_;
  std::int32_t next_ = 0;
  std::int32_t nobody_ = 0;  // the event of values that nobody makes, after all others
};

bool is_group_mate(const Instruction& first, const Instruction& i) {
  return first.group >= 0 && is_message(first.op) && is_message(i.op) && i.group == first.group;
}

/// Among the messages of the group that a rank stands at, the place of the one with the rank that
/// it waits for.
std::int32_t telling_place(const Schedule& schedule, const TokenMachine::Standing& standing) {
  const std::vector<Instruction>& program = schedule.programs[standing.place.rank];
  const std::int32_t first = standing.place.index;
  for (auto k = first; k < static_cast<std::int32_t>(program.size()); ++k) {
    if (k > first && !is_group_mate(program[first], program[k])) break;
    if (program[k].peer == standing.waits_for_rank) return k;
  }
  return first;
}

/// Names the places at which the ranks of the shortest cycle stand.
std::vector<std::string> cycle_text(const Schedule& schedule, const TokenMachine& machine) {
  std::vector<std::string> lines;
  for (const TokenMachine::Standing& s : machine.shortest_cycle()) {
    lines.push_back(place_in_program(schedule, s.place.rank, telling_place(schedule, s)));
    if (s.waits_for_rank < 0) lines.back() += " (waits for what nobody does)";
  }
  return lines;
}

}  // namespace

DeadlockVerdict find_deadlock(const ProgramIndex& index) {
  const Schedule& schedule = index.schedule();
  if (!index.lowered()) {
    TokenMachine machine = DependencyMachine(index).build();
    if (machine.run()) return {DeadlockFreedom::rendezvous, {}};
    return {DeadlockFreedom::none, cycle_text(schedule, machine)};
  }
  TokenMachine rendezvous = rendezvous_machine(index);
  if (rendezvous.run()) return {DeadlockFreedom::rendezvous, {}};
  TokenMachine nccl = NcclMachine(index).build();
  if (nccl.run()) return {DeadlockFreedom::nccl, cycle_text(schedule, rendezvous)};
  TokenMachine buffered = buffered_machine(index);
  if (buffered.run()) return {DeadlockFreedom::buffered, cycle_text(schedule, nccl)};
  return {DeadlockFreedom::none, cycle_text(schedule, buffered)};
}

}  // namespace heteroperf
