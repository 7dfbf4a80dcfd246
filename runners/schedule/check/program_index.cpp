#include "runners/schedule/check/program_index.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {
namespace {

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
        tasks_(index.tasks()),
        graph_(tasks_.graph()),
        program_(index.schedule().programs[rank]),
        rank_(rank),
        reader_(index.collectives(), rank),
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
    if (!findings_.fail(check)) return;
    findings_.add(place_in_program(index_.schedule(), rank_, at_), why);
  }

  void check_fused(const Instruction& i) {
    const auto next = static_cast<std::size_t>(at_) + 1;
    if (is_compute(i.op) && next < program_.size() && is_compute(program_[next].op)) return;
    fail(Check::ordered, "fused with nothing: a pair is two computes, one after the other");
  }

  void visit(const Instruction& i) {
    if (static_cast<int>(i.op) >= op_count) return fail(Check::complete, "no such operation");
    if (i.op == Op::interact) return interact(i);
    if (is_message(i.op)) return message(i);
    if (!is_compute(i.op) && i.op != Op::load && i.op != Op::loss) return;
    if (!index_.lowered() && !is_compute(i.op)) {
      return fail(Check::complete, "not of a compute-only schedule");
    }
    const std::int32_t slot = tasks_.slot(i.segment, i.micro_batch, i.part);
    if (slot < 0) return fail(Check::placed, "the graph has no such segment, micro-batch or part");
    if (graph_.segments[i.segment].rank != rank_) {
      return fail(Check::placed, "the segment lies on another rank");
    }
    task(i, slot, index_.slots_[slot]);
  }

  /// Ended before the unit at hand starts.
  bool ended(std::int32_t place) const { return place != absent && place < unit_; }
  void need(std::int32_t place, const char* why) {
    if (!ended(place)) fail(Check::ordered, why);
  }
  void enter(std::int32_t& place) {
    if (place != absent) {
      fail(Check::complete, "stands there twice");
    } else {
      place = at_;
    }
  }

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

  void need_forward_inputs(const Instruction& i, std::int32_t slot) {
    tasks_.for_each_forward_input(slot, [&](std::int32_t other, int edge) {
      if (edge < 0 || !index_.messages().crosses(edge)) {
        need(index_.slots_[other].forward, "stands before a forward it needs");
      } else if (index_.lowered()) {
        need(index_.sent_[index_.messages().of(edge, slot)].receive_act,
             "stands before an activation it needs is received");
      }
    });
    if (index_.executable() && index_.is_source(i.segment)) {
      need(index_.slots_[slot].load, "stands before its data is loaded");
    }
  }

  void need_gradient_inputs(const Instruction& i, std::int32_t slot) {
    need(index_.slots_[slot].forward, "stands before its forward");
    tasks_.for_each_gradient_input(slot, [&](std::int32_t other, int edge) {
      if (edge < 0 || !index_.messages().crosses(edge)) {
        need(index_.slots_[other].gradient, "stands before a gradient it needs");
      } else if (index_.lowered()) {
        need(index_.sent_[index_.messages().of(edge, slot)].receive_grad,
             "stands before a gradient it needs is received");
      }
    });
    if (index_.executable() && tasks_.is_sink(i.segment)) {
      need(index_.slots_[slot].loss, "stands before its loss");
    }
    for (const int x : tasks_.interactions_of(i.segment)) {
      need(sets_here_[index_.collectives().interaction(x, i.micro_batch)],
           "stands before its interaction");
    }
  }

  void message(const Instruction& i) {
    if (!index_.lowered()) return fail(Check::complete, "not of a compute-only schedule");
    const std::int32_t message = index_.messages().find(i, rank_);
    if (message < 0) return fail(Check::matched, "the graph has no such message at this rank");
    const std::int32_t slot = tasks_.slot(i.segment, i.micro_batch, i.part);
    MessagePlaces& places = index_.sent_[message];
    const bool gradient = carries_gradient(i.op);
    if (is_send(i.op)) {
      need(gradient ? index_.slots_[slot].gradient : index_.slots_[slot].forward,
           "is sent before it is there");
    }
    std::int32_t& place = is_send(i.op) ? (gradient ? places.send_grad : places.send_act)
                                        : (gradient ? places.receive_grad : places.receive_act);
    if (place != absent) return fail(Check::matched, "stands there twice");
    place = at_;
  }

  /// Every forward of this rank's members must be done.
  void interact(const Instruction& i) {
    const std::int32_t set = reader_.find(i);
    if (set < 0) return fail(Check::placed, "the graph has no such interaction at this rank");
    if (sets_here_[set] != absent) return fail(Check::complete, "stands there twice");
    sets_here_[set] = at_;
    met_here_.push_back(set);
    ++index_.sets_met_[set];
    const Interaction& x = graph_.interactions[i.edge];
    for (const int member : x.members) {
      if (graph_.segments[member].rank != rank_) continue;
      for (int k = i.micro_batch; k - i.micro_batch < x.every && graph_.passes(member, k); ++k) {
        for (int part = 0; part < graph_.parts; ++part) {
          need(index_.slots_[tasks_.slot(member, k, part)].forward,
               "stands before a forward it needs");
        }
      }
    }
  }

  ProgramIndex& index_;
  const TaskTable& tasks_;
  const PipelineGraph& graph_;
  const std::vector<Instruction>& program_;
  int rank_;
  CollectiveIndex::Reader reader_;
  std::vector<std::int32_t>& sets_here_;  // [collective]: where this rank's INTERACT stands
  std::vector<std::int32_t> met_here_;
  Findings& findings_;
  std::int32_t at_ = 0, unit_ = 0;  // unit: the fused instructions at hand start there
};

ProgramIndex::ProgramIndex(const Schedule& schedule, const TaskTable& tasks,
                           const MessageIndex& messages, const CollectiveIndex& collectives,
                           Findings& findings)
    : schedule_(&schedule), tasks_(&tasks), messages_(&messages), collectives_(&collectives) {
  slots_.resize(static_cast<std::size_t>(tasks.slots()));
  if (lowered()) sent_.resize(static_cast<std::size_t>(messages.size()));
  sets_met_.assign(static_cast<std::size_t>(collectives.size()), 0);
  for (const std::vector<Instruction>& program : schedule.programs) {
    executable_ = executable_ || std::any_of(program.begin(), program.end(), only_executors_need);
  }
  executable_ = executable_ && lowered();
  std::vector<std::int32_t> sets_here(sets_met_.size(), absent);
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
    Pass(*this, rank, sets_here, findings).run();
  }
}

void ProgramIndex::check_complete(Findings& findings) const {
  const auto lacks = [&](std::int32_t slot, Op op) {
    if (!findings.fail(Check::complete)) return;
    const int segment = tasks_->segment_of(slot);
    findings.add(
        fmt::format("{} is missing", to_text(compute(op, segment, tasks_->micro_batch_of(slot),
                                                     tasks_->part_of(slot)))),
        fmt::format("rank {} has to run it", tasks_->graph().segments[segment].rank));
  };
  for (std::int32_t slot = 0; slot < tasks_->slots(); ++slot) {
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
    const int segment = tasks_->segment_of(slot);
    if (places.load == absent && is_source(segment)) lacks(slot, Op::load);
    if (places.loss == absent && tasks_->is_sink(segment)) lacks(slot, Op::loss);
  }
  const auto first_set = static_cast<std::int32_t>(collectives_->first_interaction());
  for (std::int32_t set = first_set; set < collectives_->size(); ++set) {
    const std::size_t members = collectives_->ranks(set).size();
    if (static_cast<std::size_t>(sets_met_[set]) == members) continue;
    if (!findings.fail(Check::complete)) return;
    findings.add(fmt::format("set {} of the interactions is missing", set - first_set),
                 fmt::format("{} of {} ranks have it", sets_met_[set], members));
  }
}

}  // namespace heteroperf
