// The memory of one rank while it runs its program.
//
// Three kinds of bytes are followed. *Kept* ones belong to a micro-batch between its passes.
// *Moving* ones have arrived and wait for the pass that uses them, or lie between two segments of
// the same rank. *Unfetched* ones were made here and wait until another rank begins to receive
// them, which FetchTimes reads from the simulated step. Around each pass the fullest moment is
// noted: what is kept and under way, and what the pass needs itself. An instruction changes these
// sums and nothing else, so a program is followed once from its beginning to its end.
#include "runners/plan/ready/rank_memory_trace.hpp"

#include <algorithm>
#include <optional>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {
FetchTimes::FetchTimes(const Schedule& schedule, const Timeline& timeline) {
  for (std::size_t q = 0; q < schedule.programs.size(); ++q) {
    for (std::size_t k = 0; k < schedule.programs[q].size(); ++k) {
      const Instruction& i = schedule.programs[q][k];
      if (!is_receive(i.op)) continue;
      double& time = times_[i.op == Op::recv_grad][{i.edge, i.micro_batch}];
      time = std::max(time, timeline.spans[q][k].start);
    }
  }
}

double FetchTimes::of(EdgeMicroBatch key, std::size_t kind) const {
  const auto found = times_[kind].find(key);
  return found == times_[kind].end() ? 0 : found->second;
}

void RankMemoryTrace::run(const std::vector<Instruction>& program,
                          const std::vector<TimeSpan>& spans) {
  for (std::size_t k = 0; k < program.size(); ++k) {
    // Tensors are given back when a computation begins; between messages nothing is freed.
    if (is_compute(program[k].op)) retire(spans[k].start);
    step(program[k]);
  }
}

PartState& RankMemoryTrace::part_of(const Instruction& i) {
  const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const PartState& part) {
    return part.role.segment == i.segment;
  });
  HETEROPERF_EXPECT(found != parts_.end());
  return *found;
}

bool RankMemoryTrace::here(SegmentId segment) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const PartState& part) { return part.role.segment == segment; });
}

void RankMemoryTrace::step(const Instruction& i) {
  switch (i.op) {
    case Op::recv_act:
      return arrive({i.edge, i.micro_batch}, activations_, activation_bytes[i.edge]);
    case Op::recv_grad:
      return arrive({i.edge, i.micro_batch}, gradients_, gradient_bytes[i.edge]);
    case Op::forward:
      return forward(i);
    case Op::recompute:
      return pass(i, &StageMemory::recompute, &StageMemory::after_recompute);
    case Op::input_gradient:
      take_gradients(i);
      pass(i, &StageMemory::input_gradient, &StageMemory::after_input_gradient);
      return hand_on_gradients(i);
    case Op::backward:
      take_gradients(i);
      pass(i, &StageMemory::backward, nullptr);
      return hand_on_gradients(i);
    case Op::weight_gradient:
      return pass(i, &StageMemory::weight_gradient, nullptr);
    default:
      return;
  }
}

void RankMemoryTrace::arrive(Key key, std::map<Key, std::uint64_t>& where, std::uint64_t bytes) {
  put(key, where, bytes);
  note(0);
}

/// A second tensor under the same key takes the place of the first.
void RankMemoryTrace::put(Key key, std::map<Key, std::uint64_t>& where, std::uint64_t bytes) {
  take(key, where);
  where.emplace(key, bytes);
  moving_ += bytes;
}

void RankMemoryTrace::take(Key key, std::map<Key, std::uint64_t>& where) {
  const auto found = where.find(key);
  if (found == where.end()) return;
  moving_ -= found->second;
  where.erase(found);
}

/// Lets go of tensors that other ranks have fetched by now.
void RankMemoryTrace::retire(double now) {
  for (PartState& part : parts_) {
    part.outputs.retire(now);
    part.gradients.retire(now);
  }
}

std::uint64_t RankMemoryTrace::unfetched() const {
  std::uint64_t sum = 0;
  for (const PartState& part : parts_) sum += part.outputs.bytes() + part.gradients.bytes();
  return sum;
}

/// Uses up the activations that arrived, runs the pass, and hands its outputs to a segment here or
/// to those that fetch them.
void RankMemoryTrace::forward(const Instruction& i) {
  PartState& part = part_of(i);
  for (const EdgeId e : schedule_.graph.edges.ids()) {
    if (schedule_.graph.edges[e].to == i.segment) take({e, i.micro_batch}, activations_);
  }
  pass(i, &StageMemory::forward, &StageMemory::after_forward);
  std::optional<double> fetched;
  for (const EdgeId e : schedule_.graph.edges.ids()) {
    const Edge& edge = schedule_.graph.edges[e];
    if (edge.from != i.segment) continue;
    if (here(edge.to)) {
      put({e, i.micro_batch}, activations_, activation_bytes[e]);
    } else {
      fetched = std::max(fetched.value_or(0), fetches_.of_activation({e, i.micro_batch}));
    }
  }
  // All outputs leave together, when the last of their receivers has fetched them.
  if (fetched) part.outputs.add(part.memory.outputs, *fetched);
  note(0);
}

void RankMemoryTrace::take_gradients(const Instruction& i) {
  for (const EdgeId e : schedule_.graph.edges.ids()) {
    if (schedule_.graph.edges[e].from == i.segment) {
      take({e, i.micro_batch}, gradients_);
    }
  }
}

void RankMemoryTrace::hand_on_gradients(const Instruction& i) {
  PartState& part = part_of(i);
  for (const EdgeId e : schedule_.graph.edges.ids()) {
    const Edge& edge = schedule_.graph.edges[e];
    if (edge.to != i.segment || !edge.gradient) continue;
    if (here(edge.from)) {
      put({e, i.micro_batch}, gradients_, gradient_bytes[e]);
    } else {
      part.gradients.add(gradient_bytes[e], fetches_.of_gradient({e, i.micro_batch}));
    }
  }
  note(0);
}

/// `most` is of this micro-batch alone; `after` is null where nothing is kept.
void RankMemoryTrace::pass(const Instruction& i, std::uint64_t StageMemory::*most,
                           std::uint64_t StageMemory::*after) {
  PartState& part = part_of(i);
  set_kept(part, i.micro_batch, 0);
  note(part.memory.*most);
  if (after != nullptr) set_kept(part, i.micro_batch, part.memory.*after);
  note(0);
}

void RankMemoryTrace::set_kept(PartState& part, MicroBatchId micro_batch, std::uint64_t bytes) {
  std::uint64_t& kept = part.kept[micro_batch];
  kept_ += bytes - kept;
  kept = bytes;
}

/// Looks whether this is the fullest moment so far; `running` are the bytes of the pass that runs.
void RankMemoryTrace::note(std::uint64_t running) {
  most_kept_ = std::max(most_kept_, kept_);
  most_ = std::max(most_, kept_ + moving_ + unfetched() + running);
}

}  // namespace heteroperf
