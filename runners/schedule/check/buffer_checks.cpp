// V7: memory. The first half counts activations and needs only the order of computations. The
// second half runs the program of each rank on a table of its buffers: every instruction fills the
// buffer it names with a value and reads the values it needs, FREE empties one. A value that is
// read must lie somewhere, and a message or second forward must name that very buffer.

#include <fmt/format.h>

#include <algorithm>

#include "runners/schedule/check/program_index.hpp"

namespace heteroperf {
namespace {

constexpr std::int32_t nowhere = -1;

/// Walks the ranks, each with buffers of its own.
class BufferCheck {
 public:
  BufferCheck(const ProgramIndex& index, Findings& findings)
      : index_(index),
        tasks_(index.numbers().tasks),
        values_(index.numbers().values),
        findings_(findings),
        where_(values_.size(), nowhere) {}

  void run() {
    for (rank_ = 0; rank_ < tasks_.graph().ranks; ++rank_) walk();
  }

 private:
  static constexpr std::int64_t nothing = -1;

  const std::vector<Instruction>& program() const { return index_.schedule().programs[rank_]; }

  /// Names the instruction at hand.
  void fail(const char* why) {
    findings_.fail(Check::memory, index_.schedule(), {rank_, at_}, why);
  }

  /// Runs one rank's program and complains of buffers that are full at its end.
  void walk() {
    CollectiveIndex::Reader reader(index_.numbers().collectives, rank_);
    holds_.clear();
    for (at_ = 0; at_ < static_cast<std::int32_t>(program().size()); ++at_) {
      const Instruction& i = program()[at_];
      if (i.op == Op::free) {
        free(i.buffer);
      } else if (i.op == Op::interact) {
        interact(i, reader.find(i));
      } else if (is_message(i.op)) {
        message(i);
      } else if (is_compute(i.op) || i.op == Op::load || i.op == Op::loss) {
        const std::int32_t slot = tasks_.slot(i);
        if (slot >= 0 && tasks_.graph().segments[i.segment].rank == rank_) task(i, slot);
      } else {
        unused(i);
      }
    }
    for (std::size_t buffer = 0; buffer < holds_.size(); ++buffer) {
      if (holds_[buffer] == nothing) continue;
      where_[holds_[buffer]] = nowhere;
      if (findings_.fail(Check::memory)) {
        findings_.add(fmt::format("rank {} never frees a buffer", rank_),
                      fmt::format("buffer {} is full at the end", buffer));
      }
    }
  }

  /// An instruction that makes nothing names no buffer.
  void unused(const Instruction& i) {
    if (i.buffer != nowhere) fail("has a buffer it does not use");
  }

  /// Puts a value into the buffer that the instruction names.
  void fill(const Instruction& i, std::int64_t value) {
    const std::size_t buffer = i.buffer;
    // A program cannot fill more buffers than it has instructions; this bounds the table.
    if (i.buffer < 0 || buffer >= program().size()) return fail("has no buffer for what it makes");
    if (buffer >= holds_.size()) holds_.resize(buffer + 1, nothing);
    if (holds_[buffer] != nothing) {
      fail("fills a buffer that is in use");
      where_[holds_[buffer]] = nowhere;
    }
    if (where_[value] != nowhere) holds_[where_[value]] = nothing;
    holds_[buffer] = value;
    where_[value] = i.buffer;
  }

  /// A value that is read has to lie in some buffer.
  void read(std::int64_t value) {
    if (where_[value] == nowhere) fail("reads a buffer that is not filled, or free again");
  }

  /// The instruction names the buffer of what it reads.
  void read_from(const Instruction& i, std::int64_t value) {
    read(value);
    if (where_[value] != i.buffer) fail("names another buffer than what it reads lies in");
  }

  /// Empties a buffer.
  void free(std::int32_t buffer) {
    if (buffer < 0 || buffer >= static_cast<std::int32_t>(holds_.size()) ||
        holds_[buffer] == nothing) {
      return fail("frees a buffer that is not in use");
    }
    where_[holds_[buffer]] = nowhere;
    holds_[buffer] = nothing;
  }

  /// A send reads what it carries from the buffer it names, a receive fills one.
  void message(const Instruction& i) {
    const std::int32_t message = index_.numbers().messages.find(i, rank_);
    if (message < 0) return;
    const bool gradient = carries_gradient(i.op);
    if (is_receive(i.op)) {
      return fill(i, values_.received(message, gradient));
    }
    const std::int32_t slot = tasks_.slot(i);
    read_from(i, gradient ? values_.gradient(slot) : values_.output(slot));
  }

  /// An INTERACT reads the outputs of its members and fills a buffer with the result.
  void interact(const Instruction& i, std::int32_t collective) {
    if (collective < 0) return;
    tasks_.for_each_member_slot(rank_, i.interaction(), i.micro_batch,
                                [&](std::int32_t slot) { read(values_.output(slot)); });
    fill(i, values_.interaction(collective));
  }

  /// A computation, LOAD or LOSS reads its inputs and fills a buffer with its output, if it has
  /// one.
  void task(const Instruction& i, std::int32_t slot) {
    const auto reads = [&](std::int64_t value) { read(value); };
    switch (i.op) {
      case Op::load:
        return fill(i, values_.data(slot));
      case Op::loss:
        read(values_.output(slot));
        return fill(i, values_.loss(slot));
      case Op::forward:
        values_.for_each_input(slot, reads);
        return fill(i, values_.output(slot));
      case Op::recompute:
        values_.for_each_input(slot, reads);
        return read_from(i, values_.output(slot));
      default:
        read(values_.output(slot));
        values_.for_each_input(slot, reads);
        values_.for_each_gradient_input(slot, reads);
    }
    if (i.op == Op::weight_gradient) {
      read(values_.gradient(slot));
      unused(i);
    } else if (i.op == Op::backward && values_.gradient_edges_in(i.segment) == 0) {
      unused(i);
    } else {
      fill(i, values_.gradient(slot));
    }
  }

  const ProgramIndex& index_;
  const TaskTable& tasks_;
  const ValueIndex& values_;
  Findings& findings_;
  std::vector<std::int32_t> where_;  // [value]: its buffer on this rank
  std::vector<std::int64_t> holds_;  // [buffer]: its value
  int rank_ = 0;
  std::int32_t at_ = 0;
};

}  // namespace

/// Sums of shares may miss the limit by rounding, so a little more is let pass.
void check_memory(const Schedule& schedule, std::optional<double> limit, Findings& findings) {
  if (!limit) return;
  constexpr double rounding = 1e-9;
  const std::vector<double> peaks = memory_peaks(schedule).memory;
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    if (peaks[rank] <= *limit + rounding || !findings.fail(Check::memory)) continue;
    findings.add(
        fmt::format("rank {} holds {:.4g} activations of a micro-batch", rank, peaks[rank]),
        fmt::format("the limit is {:.4g}", *limit),
        "Allow more, or take a schedule with fewer micro-batches in flight.");
  }
}

void check_buffers(const ProgramIndex& index, Findings& findings) {
  if (index.executable()) BufferCheck(index, findings).run();
}

}  // namespace heteroperf
