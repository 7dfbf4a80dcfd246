// V1 to V3, and the index that the other checks read.
//
// A pass walks each rank's program once and notes for every slot and message at which index of its
// program each of its instructions stands. Since a rank runs its program in order, an instruction
// that needs something of its own rank needs it at a smaller index: the pass compares places, and
// never has to know times. What comes from other ranks is V5's matter. Fused instructions form a
// *unit*; whatever one of them needs must stand before the whole unit.

#include "runners/schedule/check/program_index.hpp"

#include <fmt/format.h>

namespace heteroperf {
namespace {

/// Imported tables have messages but none of these; their schedules are lowered but not executable.
bool only_executors_need(const Instruction& i) {
  return i.buffer >= 0 || i.op == Op::load || i.op == Op::loss || i.op == Op::free ||
         i.op == Op::opt_step;
}

}  // namespace

/// Walks one rank's program.
class ProgramIndex::Pass {
 public:
  Pass(ProgramIndex& index, int rank, std::vector<std::int32_t>& sets_here, Findings& findings)
      : index_(index),
        numbers_(index.numbers()),
        graph_(index.graph()),
        program_(index.schedule().programs[rank]),
        rank_(rank),
        reader_(numbers_.collectives, rank),
        sets_here_(sets_here),
        findings_(findings) {}

  void run() {
    for (at_ = 0; at_ < static_cast<std::int32_t>(program_.size()); ++at_) {
      const Instruction& i = program_[at_];
      if (at_ == 0 || !program_[at_ - 1].fused_with_next) unit_ = at_;
      if (i.fused_with_next) check_fused(i);
      visit(i);
    }
    for (const std::int32_t set : met_here_) sets_here_[set] = absent;
  }

 private:
  void fail(Check check, const char* why) {
    findings_.fail(check, index_.schedule(), {rank_, at_}, why);
  }

  /// An instruction that is fused with the next needs a next one, and both are computations.
  void check_fused(const Instruction& i) {
    const auto next = static_cast<std::size_t>(at_) + 1;
    if (is_compute(i.op) && next < program_.size() && is_compute(program_[next].op)) return;
    fail(Check::ordered, "fused with nothing: a pair is two computes, one after the other");
  }

  /// Sorts out instructions that the graph does not have here, and hands the others on.
  void visit(const Instruction& i) {
    if (static_cast<int>(i.op) >= op_count) return fail(Check::complete, "no such operation");
    if (i.op == Op::interact) return interact(i);
    if (is_message(i.op)) return message(i);
    if (!is_compute(i.op) && i.op != Op::load && i.op != Op::loss) return;
    if (!index_.lowered() && !is_compute(i.op)) {
      return fail(Check::complete, "not of a compute-only schedule");
    }
    const std::int32_t slot = numbers_.tasks.slot(i);
    if (slot < 0) return fail(Check::placed, "the graph has no such segment, micro-batch or part");
    if (graph_.segments[i.segment].rank != rank_) {
      return fail(Check::placed, "the segment lies on another rank");
    }
    task(i, slot, index_.slots_[slot]);
  }

  /// Requires that `place` ended before the unit at hand starts.
  void need(std::int32_t place, const char* why) {
    if (place == absent || place >= unit_) fail(Check::ordered, why);
  }
  /// Notes the place of an instruction that may stand only once.
  void enter(std::int32_t& place) {
    if (place != absent) {
      fail(Check::complete, "stands there twice");
    } else {
      place = at_;
    }
  }

  /// Checks that a task of a slot comes after what it needs on this rank, and enters it.
  void task(const Instruction& i, std::int32_t slot, SlotPlaces& places) {
    switch (i.op) {
      case Op::load:
        return enter(places.load);
      case Op::loss:
        need(places.forward, "stands before its forward");
        return enter(places.loss);
      case Op::forward:
        need_forward_inputs(i, slot);
        return enter(places.forward);
      case Op::recompute:
        need(places.forward, "stands before its first forward");
        if (places.last != absent) fail(Check::ordered, "stands after its gradient");
        return;
      case Op::weight_gradient:
        need(places.gradient, "stands before its input gradient");
        return enter(places.last);
      default:
        need_gradient_inputs(i, slot);
        enter(places.gradient);
        if (i.op == Op::backward) enter(places.last);
    }
  }

  /// An F needs the forwards before it, or their arrival, and a source its data.
  void need_forward_inputs(const Instruction& i, std::int32_t slot) {
    numbers_.tasks.for_each_forward_input(slot, [&](std::int32_t producer, EdgeId edge) {
      if (edge == EdgeId::none() || !numbers_.messages.crosses(edge)) {
        need(index_.slots_[producer].forward, "stands before a forward it needs");
      } else if (index_.lowered()) {
        need(index_.sent_[numbers_.messages.of(edge, slot)][Op::recv_act],
             "stands before an activation it needs is received");
      }
    });
    if (index_.executable() && numbers_.tasks.is_source(i.segment)) {
      need(index_.slots_[slot].load, "stands before its data is loaded");
    }
  }

  /// A B or BW needs its own forward, the gradients behind it, or their arrival, a sink its loss,
  /// and the interactions of its segment.
  void need_gradient_inputs(const Instruction& i, std::int32_t slot) {
    need(index_.slots_[slot].forward, "stands before its forward");
    numbers_.tasks.for_each_gradient_input(slot, [&](std::int32_t consumer, EdgeId edge) {
      if (edge == EdgeId::none() || !numbers_.messages.crosses(edge)) {
        need(index_.slots_[consumer].gradient, "stands before a gradient it needs");
      } else if (index_.lowered()) {
        need(index_.sent_[numbers_.messages.of(edge, slot)][Op::recv_grad],
             "stands before a gradient it needs is received");
      }
    });
    if (index_.executable() && numbers_.tasks.is_sink(i.segment)) {
      need(index_.slots_[slot].loss, "stands before its loss");
    }
    for (const int x : numbers_.tasks.interactions_of(i.segment)) {
      need(sets_here_[numbers_.collectives.interaction(x, i.micro_batch)],
           "stands before its interaction");
    }
  }

  /// A send stands after the work that makes its value; each end of a message stands once.
  void message(const Instruction& i) {
    if (!index_.lowered()) return fail(Check::complete, "not of a compute-only schedule");
    const std::int32_t message = numbers_.messages.find(i, rank_);
    if (message < 0) return fail(Check::matched, "the graph has no such message at this rank");
    const std::int32_t slot = numbers_.tasks.slot(i);
    if (is_send(i.op)) {
      need(carries_gradient(i.op) ? index_.slots_[slot].gradient : index_.slots_[slot].forward,
           "is sent before it is there");
    }
    std::int32_t& place = index_.sent_[message][i.op];
    if (place != absent) return fail(Check::matched, "stands there twice");
    place = at_;
  }

  /// An INTERACT needs every forward of this rank's members.
  void interact(const Instruction& i) {
    const std::int32_t set = reader_.find(i);
    if (set < 0) return fail(Check::placed, "the graph has no such interaction at this rank");
    if (sets_here_[set] != absent) return fail(Check::complete, "stands there twice");
    sets_here_[set] = at_;
    met_here_.push_back(set);
    ++index_.sets_met_[set];
    numbers_.tasks.for_each_member_slot(
        rank_, i.interaction(), i.micro_batch, [&](std::int32_t slot) {
          need(index_.slots_[slot].forward, "stands before a forward it needs");
        });
  }

  ProgramIndex& index_;
  const GraphIndex& numbers_;
  const PipelineGraph& graph_;
  const std::vector<Instruction>& program_;
  int rank_;
  CollectiveIndex::Reader reader_;
  std::vector<std::int32_t>& sets_here_;  // [collective]: the place of this rank's INTERACT
  std::vector<std::int32_t> met_here_;
  Findings& findings_;
  std::int32_t at_ = 0, unit_ = 0;  // unit_ is the first instruction of the unit at hand
};

ProgramIndex::ProgramIndex(const Schedule& schedule, const GraphIndex& numbers, Findings& findings)
    : schedule_(&schedule), numbers_(&numbers) {
  slots_.resize(numbers.tasks.slots());
  sets_met_.assign(numbers.collectives.size(), 0);
  if (lowered()) {
    sent_.resize(numbers.messages.size());
    for (const std::vector<Instruction>& program : schedule.programs) {
      executable_ = executable_ || std::any_of(program.begin(), program.end(), only_executors_need);
    }
  }
  std::vector<std::int32_t> sets_here(sets_met_.size(), absent);
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
    Pass(*this, rank, sets_here, findings).run();
  }
  if (lowered()) steps_.emplace(schedule, numbers);
}

/// A slot without any gradient lacks a BW; one with B but no W, or the reverse, lacks the other.
void ProgramIndex::check_complete(Findings& findings) const {
  const TaskTable& tasks = numbers_->tasks;
  const CollectiveIndex& collectives = numbers_->collectives;
  const auto lacks = [&](std::int32_t slot, Op op) {
    if (!findings.fail(Check::complete)) return;
    findings.add(
        fmt::format("{} is missing", to_text(tasks.instruction(op, slot))),
        fmt::format("rank {} has to run it", graph().segments[tasks.segment_of(slot)].rank));
  };
  for (std::int32_t slot = 0; slot < tasks.slots(); ++slot) {
    const SlotPlaces& places = slots_[slot];
    if (places.forward == absent) lacks(slot, Op::forward);
    if (places.gradient == absent && places.last == absent) {
      lacks(slot, Op::backward);
    } else if (places.gradient == absent) {
      lacks(slot, Op::input_gradient);
    } else if (places.last == absent) {
      lacks(slot, Op::weight_gradient);
    }
    if (!executable_) continue;
    const SegmentId segment = tasks.segment_of(slot);
    if (places.load == absent && tasks.is_source(segment)) lacks(slot, Op::load);
    if (places.loss == absent && tasks.is_sink(segment)) lacks(slot, Op::loss);
  }
  const std::int32_t first_set = collectives.first_interaction();
  for (std::int32_t set = first_set; set < collectives.size(); ++set) {
    const std::size_t members = collectives.ranks(set).size();
    if (static_cast<std::size_t>(sets_met_[set]) == members) continue;
    if (!findings.fail(Check::complete)) return;
    findings.add(fmt::format("set {} of the interactions is missing", set - first_set),
                 fmt::format("{} of {} ranks have it", sets_met_[set], members));
  }
}

ProgramSteps::ProgramSteps(const Schedule& schedule, const GraphIndex& numbers)
    : schedule_(&schedule) {
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) gather(rank, numbers);
  match(numbers.messages.channels());
}

/// Appends the steps of one rank. A collective that is not the graph's is no step.
void ProgramSteps::gather(int rank, const GraphIndex& numbers) {
  CollectiveIndex::Reader reader(numbers.collectives, rank);
  const std::vector<Instruction>& program = schedule_->programs[rank];
  const std::size_t first = steps_.size();
  for (std::size_t i = 0; i < program.size(); ++i) {
    Step step{{rank, static_cast<std::int32_t>(i)}};
    step.op = program[i].op;
    if (is_message(step.op)) {
      step.message = numbers.messages.find(program[i], rank);
      if (step.message >= 0) {
        step.subject = numbers.messages.channel(program[i].edge, carries_gradient(step.op));
      }
    } else if (CollectiveIndex::is_collective(step.op)) {
      step.subject = reader.find(program[i]);
      if (step.subject < 0) continue;
    } else {
      continue;
    }
    step.run = steps_.size() > first && together(steps_.back(), step) ? runs_ - 1 : runs_++;
    steps_.push_back(step);
  }
}

/// Neighbouring messages of one group are one run, and so is one collective named for several
/// segments.
bool ProgramSteps::together(const Step& before, const Step& step) const {
  const std::vector<Instruction>& program = schedule_->programs[step.place.rank];
  if (is_message(step.op)) {
    const std::int32_t group = program[step.place.index].group;
    return group >= 0 && is_message(before.op) && before.place.index + 1 == step.place.index &&
           program[before.place.index].group == group;
  }
  return step.op == Op::reduce_tied && before.op == step.op && before.subject == step.subject;
}

void ProgramSteps::match(int channels) {
  const GroupedLists<std::int32_t> sends(channels, [&](auto insert) {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (is_send(steps_[i].op) && steps_[i].subject >= 0)
        insert(steps_[i].subject, static_cast<std::int32_t>(i));
    }
  });
  std::vector<std::int32_t> sent(channels, 0), received(sent);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    if (!is_message(step.op) || step.subject < 0) continue;
    if (is_send(step.op)) {
      step.ordinal = sent[step.subject]++;
      continue;
    }
    step.ordinal = received[step.subject]++;
    const std::span<const std::int32_t> partners = sends.of(step.subject);
    if (step.ordinal >= static_cast<std::int32_t>(partners.size())) continue;
    step.partner = partners[step.ordinal];
    steps_[step.partner].partner = static_cast<std::int32_t>(i);
  }
}

UnionFind ProgramSteps::events(const CollectiveIndex& collectives) const {
  UnionFind sets(runs_);
  std::vector<std::int32_t> first(collectives.size(), -1);
  for (const Step& step : steps_) {
    if (is_receive(step.op) && step.partner >= 0) {
      sets.unite(steps_[step.partner].run, step.run);
    } else if (!is_message(step.op)) {
      if (first[step.subject] < 0) first[step.subject] = step.run;
      sets.unite(first[step.subject], step.run);
    }
  }
  return sets;
}

}  // namespace heteroperf
