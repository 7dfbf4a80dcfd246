#include "runners/schedule/check/deadlock.hpp"

#include <algorithm>

#include "runners/schedule/check/program_steps.hpp"

namespace heteroperf {
namespace {

/// A message without its other end, or a collective that a member rank leaves out, never ends.
/// `event_of`: −1 where a step ends all the same.
template <class EventOf>
void forbid_incomplete(const ProgramSteps& steps, const CollectiveIndex& collectives,
                       TokenMachine& machine, EventOf event_of) {
  std::vector<std::int32_t> named(static_cast<std::size_t>(collectives.size()), 0);
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

TokenMachine rendezvous_machine(const Schedule& schedule, const ProgramSteps& steps,
                                const CollectiveIndex& collectives) {
  UnionFind sets = steps.events(collectives);
  TokenMachine machine(schedule.graph.ranks, steps.runs());
  for (std::size_t i = 0; i < steps.all().size(); ++i) {
    const ProgramSteps::Step& step = steps.all()[i];
    if (steps.begins_run(i)) machine.append(step.place.rank, sets.find(step.run), step.place);
  }
  forbid_incomplete(steps, collectives, machine,
                    [&](std::size_t i) { return sets.find(steps.all()[i].run); });
  return machine;
}

/// Sends of a group are issued before its receives wait.
TokenMachine buffered_machine(const Schedule& schedule, const ProgramSteps& steps,
                              const CollectiveIndex& collectives) {
  const auto count = static_cast<std::int32_t>(steps.all().size());
  UnionFind sets(count);
  std::vector<std::int32_t> first(static_cast<std::size_t>(collectives.size()), -1);
  TokenMachine machine(schedule.graph.ranks, count);
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

/// One stream per rank for compute and collectives, one per rank and other rank for messages.
class NcclMachine {
 public:
  NcclMachine(const Schedule& schedule, const TaskTable& tasks, const MessageIndex& messages,
              const ProgramSteps& steps, const CollectiveIndex& collectives)
      : schedule_(schedule),
        tasks_(tasks),
        messages_(messages),
        steps_(steps),
        collectives_(collectives),
        sets_(steps.events(collectives)) {}

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
  static std::pair<int, int> ordered(int a, int b) { return {std::min(a, b), std::max(a, b)}; }

  void number_pairs() {
    for (int e = 0; e < static_cast<int>(schedule_.graph.edges.size()); ++e) {
      if (messages_.crosses(e)) {
        pairs_.push_back(ordered(messages_.rank_from(e), messages_.rank_to(e)));
      }
    }
    std::sort(pairs_.begin(), pairs_.end());
    pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
  }

  std::int32_t stream(int rank, int edge) const {
    const auto pair = ordered(messages_.rank_from(edge), messages_.rank_to(edge));
    const auto place = std::lower_bound(pairs_.begin(), pairs_.end(), pair) - pairs_.begin();
    return schedule_.graph.ranks + 2 * static_cast<std::int32_t>(place) + (rank == pair.second);
  }

  /// Which compute makes a value, and which run brings it: the last one where there are several.
  void number_events() {
    forward_.assign(static_cast<std::size_t>(tasks_.slots()), -1);
    gradient_ = forward_;
    activation_received_.assign(static_cast<std::size_t>(messages_.size()), -1);
    gradient_received_ = activation_received_;
    events_ = steps_.runs();
    for (int rank = 0; rank < schedule_.graph.ranks; ++rank) {
      for (const Instruction& i : schedule_.programs[rank]) {
        if (!is_compute(i.op)) continue;
        const std::int32_t slot = tasks_.slot(i.segment, i.micro_batch, i.part), event = events_++;
        if (slot < 0) continue;
        if (i.op == Op::forward) forward_[slot] = event;
        if (i.op == Op::input_gradient || i.op == Op::backward) gradient_[slot] = event;
      }
    }
    for (const ProgramSteps::Step& step : steps_.all()) {
      if (!is_receive(step.op) || step.message < 0) continue;
      (carries_gradient(step.op) ? gradient_received_ : activation_received_)[step.message] =
          step.run;
    }
  }

  void append_rank(int rank, std::size_t& step, TokenMachine& machine) {
    const std::vector<Instruction>& program = schedule_.programs[rank];
    for (std::int32_t index = 0; index < static_cast<std::int32_t>(program.size()); ++index) {
      const Instruction& i = program[index];
      if (is_compute(i.op)) append_compute(rank, index, i, machine);
      const std::vector<ProgramSteps::Step>& steps = steps_.all();
      if (step == steps.size() || steps[step].place.rank != rank) continue;
      if (steps[step].place.index == index) append_step(step++, i, machine);
    }
  }

  void append_compute(int rank, std::int32_t index, const Instruction& i, TokenMachine& machine) {
    const std::int32_t event = steps_.runs() + computes_++;
    machine.append(rank, event, {rank, index});
    const std::int32_t slot = tasks_.slot(i.segment, i.micro_batch, i.part);
    if (slot < 0) return;
    const auto needs = [&](const std::vector<std::int32_t>& received) {
      return [&](std::int32_t, int edge) {
        const std::int32_t message = edge < 0 ? -1 : messages_.of(edge, slot);
        if (message < 0 || received[message] < 0) return;
        machine.require(event, sets_.find(received[message]));
      };
    };
    if (i.op == Op::forward) tasks_.for_each_forward_input(slot, needs(activation_received_));
    if (i.op == Op::input_gradient || i.op == Op::backward) {
      tasks_.for_each_gradient_input(slot, needs(gradient_received_));
    }
  }

  void append_step(std::size_t index, const Instruction& i, TokenMachine& machine) {
    const ProgramSteps::Step& step = steps_.all()[index];
    const std::int32_t event = sets_.find(step.run);
    if (!is_message(step.op)) {
      if (steps_.begins_run(index)) machine.append(step.place.rank, event, step.place);
      return;
    }
    if (step.message < 0) return;
    const std::int32_t own = stream(step.place.rank, i.edge);
    if (steps_.begins_run(index)) run_streams_.clear();
    if (std::find(run_streams_.begin(), run_streams_.end(), own) == run_streams_.end()) {
      run_streams_.push_back(own);
      machine.append(own, event, step.place);
    }
    if (!is_send(step.op)) return;
    const std::int32_t slot = tasks_.slot(i.segment, i.micro_batch, i.part);
    const std::int32_t maker = (carries_gradient(step.op) ? gradient_ : forward_)[slot];
    if (maker >= 0) machine.require(event, maker);
  }

  const Schedule& schedule_;
  const TaskTable& tasks_;
  const MessageIndex& messages_;
  const ProgramSteps& steps_;
  const CollectiveIndex& collectives_;
  UnionFind sets_;
  std::vector<std::pair<int, int>> pairs_;  // of ranks that exchange messages
  std::int32_t events_ = 0, computes_ = 0;
  std::vector<std::int32_t> forward_, gradient_;                       // [slot]: event
  std::vector<std::int32_t> activation_received_, gradient_received_;  // [message]: run
  std::vector<std::int32_t> run_streams_;
};

/// A compute-only schedule: a fused pair is one event, so is a set of an interaction on its ranks.
class DependencyMachine {
 public:
  DependencyMachine(const Schedule& schedule, const TaskTable& tasks, const MessageIndex& messages,
                    const CollectiveIndex& collectives)
      : schedule_(schedule), tasks_(tasks), messages_(messages), collectives_(collectives) {}

  TokenMachine build() {
    forward_.assign(static_cast<std::size_t>(tasks_.slots()), -1);
    gradient_ = forward_;
    std::int32_t events = collectives_.size();
    for (const std::vector<Instruction>& program : schedule_.programs)
      events = number(program, events);
    TokenMachine machine(schedule_.graph.ranks, events + 1);
    nobody_ = events;
    machine.forbid(nobody_);
    next_ = collectives_.size();
    for (int rank = 0; rank < schedule_.graph.ranks; ++rank) append_rank(rank, machine);
    return machine;
  }

 private:
  static bool fused(const std::vector<Instruction>& program, std::size_t i) {
    return i > 0 && program[i - 1].fused_with_next && is_compute(program[i - 1].op);
  }

  std::int32_t number(const std::vector<Instruction>& program, std::int32_t events) {
    for (std::size_t k = 0; k < program.size(); ++k) {
      const Instruction& i = program[k];
      if (!is_compute(i.op)) continue;
      const std::int32_t event = fused(program, k) ? events - 1 : events++;
      const std::int32_t slot = tasks_.slot(i.segment, i.micro_batch, i.part);
      if (slot < 0) continue;
      if (i.op == Op::forward) forward_[slot] = event;
      if (i.op == Op::input_gradient || i.op == Op::backward) gradient_[slot] = event;
    }
    return events;
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
        const bool joined = fused(program, k);
        if (!joined) machine.append(rank, next_++, place);
        require_inputs(i, next_ - 1, machine);
      }
    }
  }

  void require_inputs(const Instruction& i, std::int32_t event, TokenMachine& machine) const {
    const std::int32_t slot = tasks_.slot(i.segment, i.micro_batch, i.part);
    if (slot < 0) return;
    const auto needs = [&](const std::vector<std::int32_t>& maker) {
      return [&](std::int32_t other, int edge) {
        if (edge < 0 || !messages_.crosses(edge)) return;
        machine.require(event, maker[other] < 0 ? nobody_ : maker[other]);
      };
    };
    if (i.op == Op::forward) tasks_.for_each_forward_input(slot, needs(forward_));
    if (i.op == Op::input_gradient || i.op == Op::backward) {
      tasks_.for_each_gradient_input(slot, needs(gradient_));
    }
  }

  const Schedule& schedule_;
  const TaskTable& tasks_;
  const MessageIndex& messages_;
  const CollectiveIndex& collectives_;
  std::vector<std::int32_t> forward_, gradient_;  // [slot]: event
  std::int32_t next_ = 0, nobody_ = 0;
};

bool is_group_mate(const Instruction& i, const Instruction& other) {
  return i.group >= 0 && is_message(i.op) && is_message(other.op) && i.group == other.group;
}

/// Of the group that a rank stands at, the message with the rank it waits for.
std::int32_t telling_place(const Schedule& schedule, const TokenMachine::Standing& standing) {
  const std::vector<Instruction>& program = schedule.programs[standing.place.rank];
  const Instruction& first = program[standing.place.index];
  for (std::size_t k = standing.place.index; k < program.size(); ++k) {
    if (static_cast<std::int32_t>(k) > standing.place.index && !is_group_mate(first, program[k]))
      break;
    if (program[k].peer == standing.waits_for_rank) return static_cast<std::int32_t>(k);
  }
  return standing.place.index;
}

std::vector<std::string> cycle_text(const Schedule& schedule, const TokenMachine& machine) {
  std::vector<std::string> lines;
  for (const TokenMachine::Standing& s : machine.shortest_cycle()) {
    lines.push_back(place_in_program(schedule, s.place.rank, telling_place(schedule, s)));
    if (s.waits_for_rank < 0) lines.back() += " (waits for what nobody does)";
  }
  return lines;
}

}  // namespace

DeadlockVerdict find_deadlock(const Schedule& schedule, const TaskTable& tasks,
                              const MessageIndex& messages, const CollectiveIndex& collectives) {
  if (schedule.level == ScheduleLevel::compute) {
    TokenMachine machine = DependencyMachine(schedule, tasks, messages, collectives).build();
    if (machine.run()) return {DeadlockFreedom::rendezvous, {}};
    return {DeadlockFreedom::none, cycle_text(schedule, machine)};
  }
  const ProgramSteps steps(schedule, messages, collectives);
  TokenMachine rendezvous = rendezvous_machine(schedule, steps, collectives);
  if (rendezvous.run()) return {DeadlockFreedom::rendezvous, {}};
  TokenMachine nccl = NcclMachine(schedule, tasks, messages, steps, collectives).build();
  if (nccl.run()) return {DeadlockFreedom::nccl, cycle_text(schedule, rendezvous)};
  TokenMachine buffered = buffered_machine(schedule, steps, collectives);
  if (buffered.run()) return {DeadlockFreedom::buffered, cycle_text(schedule, nccl)};
  return {DeadlockFreedom::none, cycle_text(schedule, buffered)};
}

}  // namespace heteroperf
