// Lowering puts computations, messages and collectives one after the other into a single order, by
// the times of the latency model. Every rank's program is a part of that order, and both ends of a
// message are one place in it: no rank can wait for one that waits for it.
//
// The compute-only programs fix the order of computations on each rank. A *unit* is a computation
// or a fused group of them. A rank runs a unit, then stops to send what it made (its *outbox*), and
// goes on to the next unit, for which messages may still be missing. What happens next is always
// the earliest *candidate*: an outbox to flush, a collective whose members are all there, or a unit
// that has its messages. Times are whole ticks, so that what happens at once does so on every
// machine and the result is the same everywhere.
//
// A value occupies a buffer from the instruction that makes it to its last use; ValueIndex says who
// uses it. The writer counts the uses that are left, so that FREE can stand directly behind the
// last one, and gives the buffer that became free last to the next value.

#include "runners/schedule/lower/lowering.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

#include "metrics/base/error.hpp"
#include "runners/schedule/check/validator.hpp"
#include "runners/schedule/ir/graph_index.hpp"
#include "runners/schedule/lower/exchange.hpp"

namespace heteroperf {
namespace {

using Ticks = std::int64_t;
constexpr Ticks most_ticks = Ticks{1} << 61;

/// Turns times into ticks so small that all of a graph's work and messages one after the other just
/// fit below `most_ticks`. Where nothing costs anything, or more than can be added up, every time
/// is 0 ticks and all happens at once.
class TickScale {
 public:
  explicit TickScale(const PipelineGraph& graph) {
    double total = graph.latency;
    for (const SegmentId s : graph.segments.ids()) {
      const Segment& segment = graph.segments[s];
      total += 2 * graph.segment_work(s) * std::max(1.0, graph.fused_cost_factor) +
               2 * graph.latency * segment.micro_batches * graph.parts;
    }
    for (const Edge& edge : graph.edges) {
      total += (edge.activation_time + edge.gradient_time) *
               graph.segments[edge.from].micro_batches * graph.parts;
    }
    for (const Interaction& x : graph.interactions) {
      total += (x.cost + graph.latency) * graph.micro_batches;
    }
    if (!std::isfinite(total) || total <= 0) return;
    int exponent = 0;
    std::frexp(total, &exponent);
    scale_exponent_ = 60 - exponent;
    timed_ = true;
  }

  Ticks ticks(double time) const {
    return timed_ ? std::llround(std::ldexp(time, scale_exponent_)) : 0;
  }

 private:
  int scale_exponent_ = 0;
  bool timed_ = false;
};

/// Writes the programs of a lowered schedule in an order that Lowering decides: gives messages
/// their places in their channels, and values buffers, which are small numbers of a rank that are
/// used again once nothing needs the value.
class ProgramWriter {
 public:
  /// Writes the lowered form of `source`; both must outlive the writer. The number of uses of a
  /// value follows from its segment's edges alone.
  ProgramWriter(const Schedule& source, const GraphIndex& numbers)
      : graph_(source.graph),
        numbers_(numbers),
        buffers_(graph_.ranks, 0),
        free_(graph_.ranks),
        done_(graph_.ranks),
        sent_(numbers.messages.channels(), 0) {
    const CollectiveIndex& collectives = numbers.collectives;
    std::int64_t entries = numbers.values.first_interaction();
    for (std::int32_t c = collectives.first_interaction(); c < collectives.size(); ++c) {
      first_entry_.push_back(entries);
      entries += static_cast<std::int64_t>(collectives.ranks(c).size());
    }
    entries_.resize(entries);
    for (const SegmentId segment : graph_.segments.ids()) {
      std::int32_t& outputs = output_uses_.emplace_back(1);
      for (const EdgeId edge : numbers.tasks.edges_out(segment)) {
        outputs += numbers.messages.crosses(edge) ? 0 : 1;
      }
      gradient_uses_.push_back(numbers.values.gradient_edges_in(segment));
    }
    result_ = {source.name, source.chunks, ScheduleLevel::lowered, source.graph, {}};
    for (const std::vector<Instruction>& program : source.programs) {
      result_.programs.emplace_back().reserve(6 * program.size() + 4);
    }
  }

  /// Takes any value but an INTERACT's.
  bool filled(std::int64_t value) const { return entries_[value].buffer >= 0; }

  void copy(int rank, const Instruction& instruction) {
    result_.programs[rank].push_back(instruction);
  }

  /// Writes the LOAD of what an F reads, where its segment is a source.
  void load(int rank, const Instruction& forward) {
    if (!numbers_.tasks.is_source(forward.segment)) return;
    Instruction i = compute(Op::load, forward.segment, forward.micro_batch, forward.part);
    i.buffer = fill(rank, numbers_.values.data(numbers_.tasks.slot(forward)), 1);
    copy(rank, i);
  }

  /// Writes a computation. The last gradient of a slot, a W or BW, counts as the slot's one use of
  /// everything that it reads.
  void run(int rank, Instruction i) {
    const std::int32_t slot = numbers_.tasks.slot(i);
    i.buffer = output_buffer(rank, i, slot);
    copy(rank, i);
    if (i.op != Op::weight_gradient && i.op != Op::backward) return;
    const auto use_it = [&](std::int64_t value) { use(rank, value); };
    use_it(numbers_.values.output(slot));
    numbers_.values.for_each_input(slot, use_it);
    numbers_.values.for_each_gradient_input(slot, use_it);
    if (i.op == Op::weight_gradient) use_it(numbers_.values.gradient(slot));
  }

  /// Writes both ends of a message; the result is the receiving one.
  Instruction transfer(const Exchange::Sent& sent, std::int32_t group) {
    const Exchange::Parcel& parcel = sent.parcel;
    const std::int32_t message = numbers_.messages.of(parcel.edge, parcel.slot);
    const Edge& edge = graph_.edges[parcel.edge];
    const std::int64_t value = parcel.gradient ? numbers_.values.gradient(parcel.slot)
                                               : numbers_.values.output(parcel.slot);

    Instruction i =
        numbers_.tasks.instruction(parcel.gradient ? Op::send_grad : Op::send_act, parcel.slot);
    i.edge = parcel.edge;
    i.group = group;
    i.sequence = sent_[numbers_.messages.channel(parcel.edge, parcel.gradient)]++;
    i.peer = parcel.target;
    i.buffer = entries_[value].buffer;
    copy(sent.source, i);
    if (parcel.gradient) use(sent.source, value);

    i.op = parcel.gradient ? Op::recv_grad : Op::recv_act;
    i.segment = parcel.gradient ? edge.from : edge.to;
    i.peer = sent.source;
    i.buffer = fill(parcel.target, numbers_.values.received(message, parcel.gradient), 1);
    copy(parcel.target, i);
    return i;
  }

  void loss(int rank, std::int32_t slot) {
    Instruction i = numbers_.tasks.instruction(Op::loss, slot);
    i.buffer = fill(rank, numbers_.values.loss(slot), 1);
    copy(rank, i);
  }

  /// Writes FREE of the buffers that were used up since the last call. After that they may be given
  /// again.
  void free_used(int rank) {
    for (const std::int32_t buffer : done_[rank]) {
      copy(rank, {.op = Op::free, .buffer = buffer});
      free_[rank].push_back(buffer);
    }
    done_[rank].clear();
  }

  /// Writes an INTERACT.
  void meet(int rank, Instruction interact, std::int32_t collective) {
    std::int32_t gradients = 0;  // every slot of the set on this rank reads the result once
    numbers_.tasks.for_each_member_slot(rank, interact.interaction(), interact.micro_batch,
                                        [&](std::int32_t) { ++gradients; });
    interact.buffer = fill(rank, numbers_.values.interaction(collective), gradients);
    copy(rank, interact);
  }

  /// Writes a reduction, on the rank of the segment.
  void reduce(Op op, SegmentId segment) {
    copy(graph_.segments[segment].rank, {.op = op, .segment = segment});
  }

  Schedule take() { return std::move(result_); }

 private:
  struct Entry {
    std::int32_t buffer = -1, uses = 0;
  };

  /// An INTERACT's value lies on several ranks and has an entry for each.
  Entry& entry(int rank, std::int64_t value) {
    const std::int64_t first = numbers_.values.first_interaction();
    if (value < first) return entries_[value];
    const auto number = static_cast<std::int32_t>(value - first);
    const CollectiveIndex& collectives = numbers_.collectives;
    const auto ranks = collectives.ranks(collectives.first_interaction() + number);
    return entries_[first_entry_[number] +
                    (std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin())];
  }

  /// Gives a buffer on `rank`, the one that became free last or a new one, to a value that is used
  /// `uses` times until it is free.
  std::int32_t fill(int rank, std::int64_t value, std::int32_t uses) {
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

  void use(int rank, std::int64_t value) {
    Entry& used = entry(rank, value);
    if (--used.uses == 0) done_[rank].push_back(used.buffer);
  }

  /// The buffer in which a computation puts what it makes.
  std::int32_t output_buffer(int rank, const Instruction& i, std::int32_t slot) {
    const std::int64_t output = numbers_.values.output(slot);
    if (i.op == Op::forward) return fill(rank, output, output_uses_[i.segment]);
    if (i.op == Op::recompute) return entries_[output].buffer;
    if (!makes_input_gradient(i.op)) return i.buffer;
    const std::int32_t uses = gradient_uses_[i.segment] + (i.op == Op::input_gradient ? 1 : 0);
    return uses > 0 ? fill(rank, numbers_.values.gradient(slot), uses) : i.buffer;
  }

  const PipelineGraph& graph_;
  const GraphIndex& numbers_;
  std::vector<Entry> entries_;             // [value], then [INTERACT, member]
  std::vector<std::int64_t> first_entry_;  // [INTERACT]
  /// Uses of the output of a segment's F, and of the gradient that its BW makes.
  IdVector<SegmentId, std::int32_t> output_uses_, gradient_uses_;
  std::vector<std::int32_t> buffers_;                   // [rank]: how many there are
  std::vector<std::vector<std::int32_t>> free_, done_;  // [rank]
  std::vector<std::int32_t> sent_;                      // [channel]: messages so far
  Schedule result_;
};

class Lowering {
 public:
  explicit Lowering(const Schedule& source)
      : source_(source),
        graph_(source.graph),
        numbers_(graph_),
        tasks_(numbers_.tasks),
        messages_(numbers_.messages),
        collectives_(numbers_.collectives),
        writer_(source, numbers_),
        exchange_(graph_.ranks),
        scale_(graph_),
        ranks_(graph_.ranks),
        forward_end_(tasks_.slots(), 0),
        gradient_end_(forward_end_),
        arrived_(collectives_.size(), 0),
        collective_end_(arrived_.size(), 0),
        gradients_left_(collectives_.weights(), 0) {
    for (const SegmentId s : graph_.segments.ids()) {
      gradients_left_[collectives_.weights_of(s)] +=
          graph_.segments[s].micro_batches * graph_.parts;
    }
    for (int w = 0; w < collectives_.weights(); ++w) {
      if (gradients_left_[w] == 0) unused_weights_.push_back(w);
    }
  }

  Schedule run() {
    for (int rank = 0; rank < graph_.ranks; ++rank) advance(rank);
    while (!candidates_.empty()) {
      const Candidate next = candidates_.top();
      candidates_.pop();
      if (next.kind == CandidateKind::collective) {
        meet(next.subject);
      } else if (next.kind == CandidateKind::unit) {
        run_unit(next.subject);
      } else if (exchange_.sending(next.subject) &&
                 ranks_[next.subject].clock == next.time - ranks_[next.subject].transit) {
        flush(next.subject);
      }
    }
    finish();
    return writer_.take();
  }

 private:
  /// At one time, the kinds that other ranks may wait for come first.
  enum class CandidateKind : std::int32_t { outbox, collective, unit };
  struct Candidate {
    Ticks time;
    CandidateKind kind;
    std::int32_t subject;  // the rank, or the number of the collective

    bool operator<(const Candidate& other) const {
      return std::tie(other.time, other.kind, other.subject) < std::tie(time, kind, subject);
    }
  };

  struct Rank {
    std::size_t next = 0, unit_end = 0;  // the unit at hand
    std::int32_t missing = 0;            // messages that the unit waits for
    bool waiting = false;                // some messages are missing
    Ticks clock = 0;                     // end of the last unit
    Ticks transit = 0;                   // time of the quickest message in the outbox
    std::vector<std::int32_t> losses;    // slots whose LOSS follows the last unit
    std::vector<int> reductions;  // weights; −1 − weights where another rank put them off
  };

  const std::vector<Instruction>& program(int rank) const { return source_.programs[rank]; }

  /// Closes a rank's last unit, once everything is sent, and opens the next one.
  void advance(int rank) {
    Rank& state = ranks_[rank];
    settle(rank);
    while (state.next < program(rank).size() && program(rank)[state.next].op == Op::idle) {
      writer_.copy(rank, program(rank)[state.next++]);
    }
    if (state.next == program(rank).size()) return;
    if (program(rank)[state.next].op == Op::interact) return arrive(rank);
    state.unit_end = state.next + 1;
    while (program(rank)[state.unit_end - 1].fused_with_next) ++state.unit_end;
    state.missing = 0;
    for_each_received(
        rank, [&](std::int64_t value, Ticks) { state.missing += writer_.filled(value) ? 0 : 1; });
    state.waiting = state.missing > 0;
    if (!state.waiting) offer_unit(rank);
  }

  /// Visits (value, time of arrival) of the messages that the unit needs.
  template <class Visit>
  void for_each_received(int rank, Visit visit) const {
    for (std::size_t k = ranks_[rank].next; k < ranks_[rank].unit_end; ++k) {
      const Instruction& i = program(rank)[k];
      const bool gradient = i.op != Op::forward;
      const std::int32_t slot = tasks_.slot(i);
      tasks_.for_each_input(i.op, slot, [&](std::int32_t input, EdgeId edge) {
        if (edge == EdgeId::none() || !messages_.crosses(edge)) return;
        visit(numbers_.values.received(messages_.of(edge, slot), gradient),
              (gradient ? gradient_end_ : forward_end_)[input] + delay_of(edge, gradient));
      });
    }
  }

  /// Makes the unit at hand a candidate, now that the times of all its inputs are known.
  void offer_unit(int rank) {
    Ticks start = ranks_[rank].clock;
    for_each_received(rank, [&](std::int64_t, Ticks arrival) { start = std::max(start, arrival); });
    for (std::size_t k = ranks_[rank].next; k < ranks_[rank].unit_end; ++k) {
      const Instruction& i = program(rank)[k];
      if (!makes_input_gradient(i.op)) continue;
      for (const int x : tasks_.interactions_of(i.segment)) {
        start = std::max(start, collective_end_[collectives_.interaction(x, i.micro_batch)]);
      }
    }
    ranks_[rank].clock = start;
    candidates_.push({start, CandidateKind::unit, rank});
  }

  /// Runs the unit at hand: writes its computations and posts what they make.
  void run_unit(int rank) {
    Rank& state = ranks_[rank];
    const std::size_t begin = state.next, end = state.unit_end;
    Ticks duration = 0;
    for (std::size_t k = begin; k < end; ++k) {
      duration += time_of(program(rank)[k]);
      if (program(rank)[k].op == Op::forward) writer_.load(rank, program(rank)[k]);
    }
    if (end - begin > 1) {
      duration = std::llround(static_cast<double>(duration) * graph_.fused_cost_factor);
    }
    // The scale does not count second forwards; many of them must not overflow.
    state.clock = std::min(state.clock + std::min(duration, most_ticks), most_ticks);
    for (std::size_t k = begin; k < end; ++k) run_compute(rank, program(rank)[k]);
    state.next = end;
    if (!exchange_.sending(rank)) return advance(rank);
    state.transit = most_ticks;
    for (const Exchange::Parcel& parcel : exchange_.outbox(rank)) {
      state.transit = std::min(state.transit, delay_of(parcel.edge, parcel.gradient));
    }
    candidates_.push({state.clock + state.transit, CandidateKind::outbox, rank});
  }

  /// The time of a message of an edge, in ticks.
  Ticks delay_of(EdgeId edge, bool gradient) const {
    return scale_.ticks(graph_.delay(edge, gradient));
  }

  /// The time of a computation, in ticks. Each share is rounded by itself.
  Ticks time_of(const Instruction& i) const {
    if (i.op != Op::backward) return scale_.ticks(compute_time(graph_, i));
    return scale_.ticks(graph_.input_gradient(i.segment, i.micro_batch)) +
           scale_.ticks(graph_.weight_gradient(i.segment, i.micro_batch));
  }

  /// Writes a computation, notes its end, and posts what it makes.
  void run_compute(int rank, const Instruction& i) {
    writer_.run(rank, i);
    const std::int32_t slot = tasks_.slot(i);
    if (i.op == Op::forward) {
      forward_end_[slot] = ranks_[rank].clock;
      post(rank, tasks_.edges_out(i.segment), slot, false);
      if (tasks_.is_sink(i.segment)) ranks_[rank].losses.push_back(slot);
    }
    if (makes_input_gradient(i.op)) {
      gradient_end_[slot] = ranks_[rank].clock;
      post(rank, tasks_.edges_in(i.segment), slot, true);
    }
    if (i.op == Op::weight_gradient || i.op == Op::backward) {
      const int weights = collectives_.weights_of(i.segment);
      if (--gradients_left_[weights] == 0) ranks_[rank].reductions.push_back(weights);
    }
  }

  /// Puts a value into the outbox for each of these edges that leaves the rank.
  void post(int rank, std::span<const EdgeId> edges, std::int32_t slot, bool gradient) {
    for (const EdgeId edge : edges) {
      if (!messages_.crosses(edge) || (gradient && !graph_.edges[edge].gradient)) continue;
      const int target = gradient ? messages_.rank_from(edge) : messages_.rank_to(edge);
      exchange_.outbox(rank).push_back({target, edge, slot, gradient});
    }
  }

  /// Sends a rank's outbox. A message that has arrived when its target stops is received before the
  /// target sends, which costs nothing. A rank that stops while a message to it is under way sends
  /// first; where both do, or more in a circle, they send to each other in one group.
  void flush(int rank) {
    exchange_.flush(
        rank,
        [&](int source, int target) {
          const Ticks sent = ranks_[source].clock, stops = ranks_[target].clock;
          return stops == sent || stops < sent + ranks_[source].transit;
        },
        [&](const Exchange::Sent& sent, bool grouped) {
          receive(sent.parcel.target, writer_.transfer(sent, grouped ? group_ : -1));
        },
        [&] { ++group_; }, [&](int emptied) { advance(emptied); });
  }

  /// Notes an arrival for the unit that waits for it.
  void receive(int rank, const Instruction& message) {
    Rank& state = ranks_[rank];
    if (!state.waiting) return;
    for (std::size_t k = state.next; k < state.unit_end; ++k) {
      const Instruction& i = program(rank)[k];
      if (message.op == Op::recv_act ? i.op != Op::forward : !makes_input_gradient(i.op)) continue;
      if (i.segment != message.segment || i.micro_batch != message.micro_batch ||
          i.part != message.part) {
        continue;
      }
      if (--state.missing > 0) return;
      state.waiting = false;
      return offer_unit(rank);
    }
  }

  /// Writes LOSS, FREE and reductions that follow the last unit.
  void settle(int rank) {
    Rank& state = ranks_[rank];
    for (const std::int32_t slot : state.losses) writer_.loss(rank, slot);
    state.losses.clear();
    writer_.free_used(rank);
    // A reduction is put off to another rank only, so the list does not grow here.
    for (const int entry : state.reductions) {
      entry < 0 ? reduce(-1 - entry) : reduce_soon(rank, entry);
    }
    state.reductions.clear();
  }

  /// Writes a reduction, or puts it off once: the member that sends longest finishes that first.
  void reduce_soon(int rank, int weights) {
    int last = -1;
    for (const int member : collectives_.ranks(weights)) {
      if (member == rank || !exchange_.sending(member)) continue;
      if (last < 0 || ranks_[member].clock > ranks_[last].clock) last = member;
    }
    if (last < 0) return reduce(weights);
    ranks_[last].reductions.push_back(-1 - weights);
  }

  void reduce(int weights) {
    for (const SegmentId segment : collectives_.first_copies(weights)) {
      writer_.reduce(Op::reduce_grad, segment);
    }
  }

  /// Notes that a rank stands at an INTERACT; it goes on when all members stand there.
  void arrive(int rank) {
    const Instruction& i = program(rank)[ranks_[rank].next];
    const std::int32_t collective = collectives_.interaction(i.interaction(), i.micro_batch);
    Ticks& end = collective_end_[collective];
    end = std::max(end, ranks_[rank].clock);
    const auto members = static_cast<std::int32_t>(collectives_.ranks(collective).size());
    if (++arrived_[collective] < members) return;
    candidates_.push({end, CandidateKind::collective, collective});
    end += scale_.ticks(graph_.interactions[i.interaction()].cost) +
           (members > 1 ? scale_.ticks(graph_.latency) : 0);
  }

  /// Writes an INTERACT on all of its ranks, which then go on.
  void meet(std::int32_t collective) {
    for (const int rank : collectives_.ranks(collective)) {
      writer_.meet(rank, program(rank)[ranks_[rank].next++], collective);
    }
    for (const int rank : collectives_.ranks(collective)) advance(rank);
  }

  /// Writes what follows all computations: reductions that no gradient started, and the steps.
  void finish() {
    for (const int weights : unused_weights_) reduce(weights);
    for (std::vector<SegmentId> set : graph_.tied) {
      std::sort(set.begin(), set.end());
      for (const SegmentId segment : set) writer_.reduce(Op::reduce_tied, segment);
    }
    for (int rank = 0; rank < graph_.ranks; ++rank) {
      HETEROPERF_ENSURE(ranks_[rank].next == program(rank).size());
      writer_.copy(rank, {.op = Op::opt_step});
    }
  }

  const Schedule& source_;
  const PipelineGraph& graph_;
  GraphIndex numbers_;
  const TaskTable& tasks_;
  const MessageIndex& messages_;
  const CollectiveIndex& collectives_;
  ProgramWriter writer_;
  Exchange exchange_;
  TickScale scale_;
  std::vector<Rank> ranks_;
  std::priority_queue<Candidate> candidates_;
  std::vector<Ticks> forward_end_, gradient_end_;  // [slot]
  std::vector<std::int32_t> arrived_;              // [collective]: members that stand there
  std::vector<Ticks> collective_end_;              // [collective]
  std::vector<std::int32_t> gradients_left_;       // [weights]: slots without their last gradient
  std::vector<int> unused_weights_;                // weights that no micro-batch passes
  std::int32_t group_ = 0;                         // number of the next group
};

}  // namespace

Schedule lower(const Schedule& schedule) {
  if (schedule.level == ScheduleLevel::lowered) return lower(compute_only(schedule));
  const ScheduleChecks checks = check_schedule(schedule);
  if (!checks.ok()) throw UserError(checks.problems);
  PipelineGraph graph = schedule.graph;
  normalise(graph);
  if (graph == schedule.graph) return Lowering(schedule).run();
  return Lowering({schedule.name, schedule.chunks, schedule.level, graph, schedule.programs}).run();
}

Schedule compute_only(const Schedule& schedule) {
  Schedule result{schedule.name, schedule.chunks, ScheduleLevel::compute, schedule.graph, {}};
  for (const std::vector<Instruction>& program : schedule.programs) {
    std::vector<Instruction>& kept = result.programs.emplace_back();
    for (Instruction i : program) {
      if (!is_compute(i.op) && i.op != Op::interact && i.op != Op::idle) continue;
      i.buffer = -1;
      kept.push_back(i);
    }
  }
  return result;
}

}  // namespace heteroperf
