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
void forbid_incomplete(const ProgramIndex& index, TokenMachine& machine, EventOf event_of) {
  const ProgramSteps& steps = index.steps();
  const CollectiveIndex& collectives = index.numbers().collectives;
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
  UnionFind sets = steps.events(index.numbers().collectives);
  TokenMachine machine(index.graph().ranks, steps.runs());
  for (std::size_t i = 0; i < steps.all().size(); ++i) {
    const ProgramSteps::Step& step = steps.all()[i];
    if (steps.begins_run(i)) machine.append(step.place.rank, sets.find(step.run), step.place);
  }
  forbid_incomplete(index, machine, [&](std::size_t i) { return sets.find(steps.all()[i].run); });
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
  forbid_incomplete(index, machine, [&](std::size_t i) {
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
TokenMachine nccl_machine(const ProgramIndex& index) {
  const Schedule& schedule = index.schedule();
  const TaskTable& tasks = index.numbers().tasks;
  const MessageIndex& messages = index.numbers().messages;
  const std::vector<ProgramSteps::Step>& steps = index.steps().all();
  UnionFind sets = index.steps().events(index.numbers().collectives);
  const auto pair_of = [&](EdgeId edge) -> std::pair<int, int> {
    return std::minmax({messages.rank_from(edge), messages.rank_to(edge)});
  };
  std::vector<std::pair<int, int>> pairs;  // ranks that exchange messages, the smaller one first
  for (const EdgeId e : schedule.graph.edges.ids()) {
    if (messages.crosses(e)) pairs.push_back(pair_of(e));
  }
  sort_unique(pairs);

  // Runs have the first numbers, computations the next ones in the order of the programs.
  Makers makers(tasks.slots()), receivers(messages.size());  // the event of a receiver is a run
  std::int32_t events = index.steps().runs();
  for (const std::vector<Instruction>& program : schedule.programs) {
    for (const Instruction& i : program) {
      if (is_compute(i.op)) makers.note(i.op, tasks.slot(i), events++);
    }
  }
  for (const ProgramSteps::Step& step : steps) {
    if (!is_receive(step.op) || step.message < 0) continue;
    receivers.event[carries_gradient(step.op)][step.message] = step.run;
  }

  TokenMachine machine(schedule.graph.ranks + 2 * static_cast<std::int32_t>(pairs.size()), events);
  // A computation waits for the messages it receives, not for the place of the receives.
  const auto append_compute = [&](const Instruction& i, TokenMachine::Place place,
                                  std::int32_t event) {
    machine.append(place.rank, event, place);
    const std::int32_t slot = tasks.slot(i);
    if (slot < 0) return;
    tasks.for_each_input(i.op, slot, [&](std::int32_t, EdgeId edge) {
      if (edge == EdgeId::none()) return;
      const std::int32_t run = receivers.event[i.op != Op::forward][messages.of(edge, slot)];
      if (run >= 0) machine.require(event, sets.find(run));
    });
  };
  // A run stands once in each of its streams, and a send waits for what makes its value.
  Numbers run_streams;
  const auto append_step = [&](std::size_t k, const Instruction& i) {
    const ProgramSteps::Step& step = steps[k];
    const std::int32_t event = sets.find(step.run);
    if (index.steps().begins_run(k)) run_streams.clear();
    std::int32_t stream = step.place.rank;
    if (is_message(step.op)) {
      if (step.message < 0) return;
      const auto place = std::lower_bound(pairs.begin(), pairs.end(), pair_of(i.edge));
      stream = schedule.graph.ranks + 2 * static_cast<std::int32_t>(place - pairs.begin()) +
               (step.place.rank == place->second);
    }
    if (std::find(run_streams.begin(), run_streams.end(), stream) == run_streams.end()) {
      run_streams.push_back(stream);
      machine.append(stream, event, step.place);
    }
    if (!is_send(step.op)) return;
    const std::int32_t maker = makers.event[carries_gradient(step.op)][tasks.slot(i)];
    if (maker >= 0) machine.require(event, maker);
  };
  std::int32_t computation = index.steps().runs();
  std::size_t next = 0;
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
    const std::vector<Instruction>& program = schedule.programs[rank];
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(program.size()); ++k) {
      if (is_compute(program[k].op)) append_compute(program[k], {rank, k}, computation++);
      if (next == steps.size() || steps[next].place.rank != rank) continue;
      if (steps[next].place.index == k) append_step(next++, program[k]);
    }
  }
  forbid_incomplete(index, machine, [&](std::size_t i) { return sets.find(steps[i].run); });
  return machine;
}

/// The machine of a compute-only schedule: a fused pair is one event, and so is a set of an
/// interaction on its ranks.
TokenMachine dependency_machine(const ProgramIndex& index) {
  const Schedule& schedule = index.schedule();
  const TaskTable& tasks = index.numbers().tasks;
  const CollectiveIndex& collectives = index.numbers().collectives;
  // The second of a fused pair is part of the event before it.
  const auto fused = [](const std::vector<Instruction>& program, std::size_t k) {
    return k > 0 && program[k - 1].fused_with_next && is_compute(program[k - 1].op);
  };
  Makers makers(tasks.slots());
  std::int32_t nobody = collectives.size();  // the event of values that nobody makes, after others
  for (const std::vector<Instruction>& program : schedule.programs) {
    for (std::size_t k = 0; k < program.size(); ++k) {
      if (!is_compute(program[k].op)) continue;
      if (!fused(program, k)) ++nobody;
      makers.note(program[k].op, tasks.slot(program[k]), nobody - 1);
    }
  }
  TokenMachine machine(schedule.graph.ranks, nobody + 1);
  machine.forbid(nobody);
  std::int32_t event = collectives.size() - 1;
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
    CollectiveIndex::Reader reader(collectives, rank);
    const std::vector<Instruction>& program = schedule.programs[rank];
    for (std::size_t k = 0; k < program.size(); ++k) {
      const Instruction& i = program[k];
      const TokenMachine::Place place{rank, static_cast<std::int32_t>(k)};
      const std::int32_t collective = i.op == Op::interact ? reader.find(i) : -1;
      if (collective >= 0) machine.append(rank, collective, place);
      if (!is_compute(i.op)) continue;
      if (!fused(program, k)) machine.append(rank, ++event, place);
      const std::int32_t slot = tasks.slot(i);
      if (slot < 0) continue;
      tasks.for_each_input(i.op, slot, [&](std::int32_t input, EdgeId edge) {
        if (edge == EdgeId::none() || !index.numbers().messages.crosses(edge)) return;
        const std::int32_t maker = makers.event[i.op != Op::forward][input];
        machine.require(event, maker < 0 ? nobody : maker);
      });
    }
  }
  return machine;
}

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
    TokenMachine machine = dependency_machine(index);
    if (machine.run()) return {DeadlockFreedom::rendezvous, {}};
    return {DeadlockFreedom::none, cycle_text(schedule, machine)};
  }
  TokenMachine rendezvous = rendezvous_machine(index);
  if (rendezvous.run()) return {DeadlockFreedom::rendezvous, {}};
  TokenMachine nccl = nccl_machine(index);
  if (nccl.run()) return {DeadlockFreedom::nccl, cycle_text(schedule, rendezvous)};
  TokenMachine buffered = buffered_machine(index);
  if (buffered.run()) return {DeadlockFreedom::buffered, cycle_text(schedule, nccl)};
  return {DeadlockFreedom::none, cycle_text(schedule, buffered)};
}

}  // namespace heteroperf
