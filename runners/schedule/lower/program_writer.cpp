// A value occupies a buffer from the instruction that makes it to its last use; ValueIndex says who
// uses it. The pool counts the uses that are left, so that FREE can stand directly behind the last
// one, and gives the buffer that became free last to the next value.

#include "runners/schedule/lower/program_writer.hpp"

#include <algorithm>

namespace heteroperf {

/// The number of uses of a value follows from its segment's edges alone.
BufferPool::BufferPool(const GraphIndex& numbers) : numbers_(numbers) {
  const CollectiveIndex& collectives = numbers.collectives;
  std::int64_t entries = numbers.values.first_interaction();
  for (std::int32_t c = collectives.first_interaction(); c < collectives.size(); ++c) {
    first_entry_.push_back(entries);
    entries += static_cast<std::int64_t>(collectives.ranks(c).size());
  }
  entries_.resize(entries);
  const PipelineGraph& graph = numbers.tasks.graph();
  const std::size_t ranks = graph.ranks;
  buffers_.assign(ranks, 0);
  free_.resize(ranks);
  done_.resize(ranks);
  for (const SegmentId segment : graph.segments.ids()) {
    std::int32_t& outputs = output_uses_.emplace_back(1);
    for (const EdgeId edge : numbers.tasks.edges_out(segment)) {
      outputs += numbers.messages.crosses(edge) ? 0 : 1;
    }
    gradient_uses_.push_back(numbers.values.gradient_edges_in(segment));
  }
}

BufferPool::Entry& BufferPool::entry(int rank, std::int64_t value) {
  const std::int64_t first = numbers_.values.first_interaction();
  if (value < first) return entries_[value];
  const auto number = static_cast<std::int32_t>(value - first);
  const CollectiveIndex& collectives = numbers_.collectives;
  const auto ranks = collectives.ranks(collectives.first_interaction() + number);
  return entries_[first_entry_[number] +
                  (std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin())];
}

/// Takes the buffer that became free last, or a new one.
std::int32_t BufferPool::fill(int rank, std::int64_t value, std::int32_t uses) {
  std::int32_t buffer = buffers_[rank];
  if (free_[rank].empty()) {
    ++buffers_[rank];
  } else {
    buffer = free_[rank].back();
    free_[rank].pop_back();
  }
  entry(rank, value) = {buffer, uses};
  return buffer;
}

void BufferPool::use(int rank, std::int64_t value) {
  Entry& used = entry(rank, value);
  if (--used.uses == 0) done_[rank].push_back(used.buffer);
}

/// The last gradient of a slot counts as the slot's one use of everything that it reads.
void BufferPool::finish(int rank, std::int32_t slot, bool split) {
  const auto use_it = [&](std::int64_t value) { use(rank, value); };
  use_it(numbers_.values.output(slot));
  numbers_.values.for_each_input(slot, use_it);
  numbers_.values.for_each_gradient_input(slot, use_it);
  if (split) use_it(numbers_.values.gradient(slot));
}

ProgramWriter::ProgramWriter(const Schedule& source, const GraphIndex& numbers)
    : graph_(source.graph),
      numbers_(numbers),
      buffers_(numbers),
      sent_(numbers.messages.channels(), 0) {
  result_.name = source.name;
  result_.chunks = source.chunks;
  result_.level = ScheduleLevel::lowered;
  result_.graph = source.graph;
  for (const std::vector<Instruction>& program : source.programs) {
    result_.programs.emplace_back().reserve(6 * program.size() + 4);
  }
}

void ProgramWriter::copy(int rank, const Instruction& instruction) {
  result_.programs[rank].push_back(instruction);
}

void ProgramWriter::load(int rank, const Instruction& forward) {
  if (!numbers_.tasks.is_source(forward.segment)) return;
  Instruction i = compute(Op::load, forward.segment, forward.micro_batch, forward.part);
  i.buffer = buffers_.fill(rank, numbers_.values.data(numbers_.tasks.slot(forward)), 1);
  copy(rank, i);
}

/// Writes a computation; a W or BW ends what its slot uses.
void ProgramWriter::run(int rank, Instruction i) {
  i.buffer = output_buffer(rank, i);
  copy(rank, i);
  if (i.op != Op::weight_gradient && i.op != Op::backward) return;
  buffers_.finish(rank, numbers_.tasks.slot(i), i.op == Op::weight_gradient);
}

/// The buffer in which a computation puts what it makes.
std::int32_t ProgramWriter::output_buffer(int rank, const Instruction& i) {
  const std::int32_t slot = numbers_.tasks.slot(i);
  switch (i.op) {
    case Op::forward:
      return buffers_.fill(rank, numbers_.values.output(slot), buffers_.output_uses(slot));
    case Op::recompute:
      return buffers_.of(numbers_.values.output(slot));
    case Op::input_gradient:
    case Op::backward: {
      const std::int32_t uses = buffers_.gradient_uses(slot, i.op == Op::input_gradient);
      return uses > 0 ? buffers_.fill(rank, numbers_.values.gradient(slot), uses) : i.buffer;
    }
    default:
      return i.buffer;
  }
}

Instruction ProgramWriter::transfer(const Exchange::Sent& sent, std::int32_t group) {
  const Exchange::Parcel& parcel = sent.parcel;
  const std::int32_t message = numbers_.messages.of(parcel.edge, parcel.slot);
  const Edge& edge = graph_.edges[parcel.edge];
  const std::int64_t value =
      parcel.gradient ? numbers_.values.gradient(parcel.slot) : numbers_.values.output(parcel.slot);

  Instruction i =
      numbers_.tasks.instruction(parcel.gradient ? Op::send_grad : Op::send_act, parcel.slot);
  i.edge = parcel.edge;
  i.group = group;
  i.sequence = sent_[numbers_.messages.channel(parcel.edge, parcel.gradient)]++;
  i.peer = parcel.target;
  i.buffer = buffers_.of(value);
  copy(sent.source, i);
  if (parcel.gradient) buffers_.use(sent.source, value);

  i.op = parcel.gradient ? Op::recv_grad : Op::recv_act;
  i.segment = parcel.gradient ? edge.from : edge.to;
  i.peer = sent.source;
  i.buffer = buffers_.fill(parcel.target, numbers_.values.received(message, parcel.gradient), 1);
  copy(parcel.target, i);
  return i;
}

/// Writes the LOSS of a sink, from which its gradients start.
void ProgramWriter::loss(int rank, std::int32_t slot) {
  Instruction i = numbers_.tasks.instruction(Op::loss, slot);
  i.buffer = buffers_.fill(rank, numbers_.values.loss(slot), 1);
  copy(rank, i);
}

void ProgramWriter::free_used(int rank) {
  buffers_.drain(rank, [&](std::int32_t buffer) {
    Instruction i;
    i.op = Op::free;
    i.buffer = buffer;
    copy(rank, i);
  });
}

void ProgramWriter::meet(int rank, Instruction interact, std::int32_t collective) {
  std::int32_t gradients = 0;  // every slot of the set on this rank reads the result once
  numbers_.tasks.for_each_member_slot(rank, interact.interaction(), interact.micro_batch,
                                      [&](std::int32_t) { ++gradients; });
  interact.buffer = buffers_.fill(rank, numbers_.values.interaction(collective), gradients);
  copy(rank, interact);
}

void ProgramWriter::reduce(Op op, SegmentId segment) {
  Instruction i;
  i.op = op;
  i.segment = segment;
  copy(graph_.segments[segment].rank, i);
}

void ProgramWriter::step(int rank) {
  Instruction i;
  i.op = Op::opt_step;
  copy(rank, i);
}

}  // namespace heteroperf
