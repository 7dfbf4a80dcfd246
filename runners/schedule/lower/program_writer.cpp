#include "runners/schedule/lower/program_writer.hpp"

#include <algorithm>

namespace heteroperf {

ProgramWriter::ProgramWriter(const Schedule& source, const TaskTable& tasks,
                             const MessageIndex& messages, const CollectiveIndex& collectives)
    : graph_(tasks.graph()),
      tasks_(tasks),
      messages_(messages),
      buffers_(tasks, messages, collectives),
      sent_(static_cast<std::size_t>(messages.channels()), 0) {
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
  if (!tasks_.edges_in(forward.segment).empty()) return;
  Instruction i = compute(Op::load, forward.segment, forward.micro_batch, forward.part);
  i.buffer = buffers_.fill(rank, values().data(slot_of(forward)), 1);
  copy(rank, i);
}

void ProgramWriter::run(int rank, Instruction i) {
  i.buffer = output_buffer(rank, i);
  copy(rank, i);
  if (i.op != Op::weight_gradient && i.op != Op::backward) return;
  buffers_.finish(rank, slot_of(i), i.op == Op::weight_gradient);
}

/// Where a compute puts what it makes.
std::int32_t ProgramWriter::output_buffer(int rank, const Instruction& i) {
  const std::int32_t slot = slot_of(i);
  switch (i.op) {
    case Op::forward:
      return buffers_.fill(rank, values().output(slot), buffers_.output_uses(slot));
    case Op::recompute:
      return buffers_.of(values().output(slot));
    case Op::input_gradient:
    case Op::backward: {
      const std::int32_t uses = buffers_.gradient_uses(slot, i.op == Op::input_gradient);
      return uses > 0 ? buffers_.fill(rank, values().gradient(slot), uses) : i.buffer;
    }
    default:
      return i.buffer;
  }
}

Instruction ProgramWriter::transfer(const Exchange::Sent& sent, std::int32_t group) {
  const Exchange::Parcel& parcel = sent.parcel;
  const std::int32_t message = messages_.of(parcel.edge, parcel.slot);
  const Edge& edge = graph_.edges[parcel.edge];
  const std::int64_t value =
      parcel.gradient ? values().gradient(parcel.slot) : values().output(parcel.slot);
  const std::int64_t received =
      parcel.gradient ? values().received_gradient(message) : values().activation(message);

  Instruction i =
      compute(parcel.gradient ? Op::send_grad : Op::send_act, parcel.gradient ? edge.to : edge.from,
              tasks_.micro_batch_of(parcel.slot), tasks_.part_of(parcel.slot));
  i.edge = parcel.edge;
  i.group = group;
  i.sequence = sent_[messages_.channel(parcel.edge, parcel.gradient)]++;
  i.peer = parcel.target;
  i.buffer = buffers_.of(value);
  copy(sent.source, i);
  if (parcel.gradient) buffers_.use(sent.source, value);

  i.op = parcel.gradient ? Op::recv_grad : Op::recv_act;
  i.segment = parcel.gradient ? edge.from : edge.to;
  i.peer = sent.source;
  i.buffer = buffers_.fill(parcel.target, received, 1);
  copy(parcel.target, i);
  return i;
}

void ProgramWriter::loss(int rank, std::int32_t slot) {
  Instruction i =
      compute(Op::loss, tasks_.segment_of(slot), tasks_.micro_batch_of(slot), tasks_.part_of(slot));
  i.buffer = buffers_.fill(rank, values().loss(slot), 1);
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
  interact.buffer =
      buffers_.fill(rank, values().interaction(collective), gradients_of(rank, interact));
  copy(rank, interact);
}

/// How many slots of this rank belong to an INTERACT's set.
std::int32_t ProgramWriter::gradients_of(int rank, const Instruction& interact) const {
  const Interaction& x = graph_.interactions[interact.edge];
  std::int32_t slots = 0;
  for (const int member : x.members) {
    if (graph_.segments[member].rank != rank) continue;
    const Segment& segment = graph_.segments[member];
    const int end = segment.first_micro_batch + segment.micro_batches;
    slots += std::min(x.every, end - interact.micro_batch) * graph_.parts;
  }
  return slots;
}

void ProgramWriter::reduce(Op op, int segment) {
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
