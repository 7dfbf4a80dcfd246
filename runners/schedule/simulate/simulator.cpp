// The model `latency`, and the door to the others.
//
// Under `latency` only the order of computations on each rank and the values that they pass to each
// other decide when something runs; messages arrive the graph's latency after the end of the work
// that makes them, and take no time of a rank. A *value* is what an instruction makes and others
// wait for: the forward of a slot (2·slot), the gradient of its input (2·slot + 1), or the end of
// an interaction's set. A rank that needs a value that is not there yet joins the list of those
// that wait for it; publish() wakes them. As each time is the largest of some others, the order in
// which ranks run ahead does not matter, and no queue of events is needed.

#include "runners/schedule/simulate/simulator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/schedule/ir/graph_index.hpp"
#include "runners/schedule/simulate/rank_clocks.hpp"

namespace heteroperf {
namespace {

/// The clock of the model `latency`.
class LatencyClock {
 public:
  explicit LatencyClock(const Schedule& schedule)
      : schedule_(schedule),
        graph_(schedule.graph),
        tasks_(graph_),
        collectives_(tasks_),
        clocks_(schedule, false),
        values_(2 * static_cast<std::size_t>(tasks_.slots()) + collectives_.size() -
                collectives_.first_interaction()),
        waits_for_(schedule.programs.size(), -1),
        next_waiting_(schedule.programs.size(), -1) {}

  Timeline run() {
    clocks_.run_ready([&](int rank) { return step(rank); });
    const int stuck = clocks_.stuck_rank();
    if (stuck >= 0) throw waiting_chain(stuck);
    return std::move(clocks_.timeline());
  }

 private:
  using Cause = Timeline::Cause;
  static constexpr double unknown = -1;

  struct Value {
    double end = unknown;
    Cause maker;
    std::int32_t waiting = -1;  // the first of the ranks that wait for it
    std::int32_t arrived = 0;   // ranks that have reached an interaction
    double latest = 0;          // the latest time of these
  };
  /// The latest of an instruction's inputs, or a value that is not there yet.
  struct Inputs {
    double time = 0;
    Cause cause;
    std::int32_t missing = -1;
  };

  /// Passes an instruction, or a fused pair, if its inputs are there.
  bool step(int rank) {
    const RankClock& clock = clocks_[rank];
    const std::int32_t next = clock.next();
    const auto size = static_cast<std::int32_t>(schedule_.programs[rank].size());
    const bool pair = clock.instruction().fused_with_next && next + 1 < size;
    const Op op = clock.instruction().op;
    if (!pair && !is_compute(op) && op != Op::interact) {
      clocks_[rank].pass(0);
      return true;
    }
    Inputs inputs;
    need(rank, clock.instruction(), inputs);
    if (pair) need(rank, clock.instruction(next + 1), inputs);
    if (inputs.missing >= 0) {
      waits_for_[rank] = inputs.missing;
      next_waiting_[rank] = values_[inputs.missing].waiting;
      values_[inputs.missing].waiting = rank;
      return false;
    }
    if (op == Op::interact && !pair) {
      interact(rank, inputs);
    } else {
      run(rank, inputs, pair);
    }
    return true;
  }

  /// Adds a value to the inputs of an instruction.
  void need_value(std::int32_t value, double latency, Inputs& inputs) const {
    const Value& v = values_[value];
    if (v.end == unknown) {
      inputs.missing = value;
    } else if (v.end + latency > inputs.time) {
      inputs.time = v.end + latency;
      inputs.cause = v.maker;
    }
  }

  /// The slot of a computation, which has to be one of this rank.
  std::int32_t slot_of(int rank, const Instruction& i) const {
    const std::int32_t slot = tasks_.slot(i);
    if (slot >= 0 && graph_.segments[i.segment].rank == rank) return slot;
    refuse(rank, i, "its graph has no such segment, micro-batch or part there");
  }

  [[noreturn]] static void refuse(int rank, const Instruction& i, const char* why) {
    throw UserError(fmt::format("rank {} cannot run {}", rank, to_text(i)), why,
                    "Check the schedule's programs.");
  }

  /// The value that the end of an interaction's set is.
  std::int32_t set_value(int interaction, MicroBatchId micro_batch) const {
    return 2 * tasks_.slots() + collectives_.interaction(interaction, micro_batch) -
           collectives_.first_interaction();
  }

  /// Adds everything that an instruction waits for.
  void need(int rank, const Instruction& i, Inputs& inputs) const {
    if (i.op == Op::interact) return need_members(rank, i, inputs);
    if (!is_compute(i.op)) return;
    const std::int32_t slot = slot_of(rank, i);
    const int gradient = i.op == Op::forward ? 0 : 1;
    if (i.op == Op::weight_gradient) return need_value(2 * slot + 1, 0, inputs);
    if (gradient) need_value(2 * slot, 0, inputs);
    tasks_.for_each_input(i.op, slot, [&](std::int32_t input, EdgeId edge) {
      const double delay = edge == EdgeId::none() ? 0 : graph_.delay(edge, gradient != 0);
      need_value(2 * input + gradient, delay, inputs);
    });
    if (!makes_input_gradient(i.op)) return;
    for (const int x : tasks_.interactions_of(i.segment)) {
      need_value(set_value(x, i.micro_batch), 0, inputs);
    }
  }

  /// An interaction needs the forward of this rank's members for every micro-batch of the set.
  void need_members(int rank, const Instruction& i, Inputs& inputs) const {
    if (i.edge.index() >= graph_.interactions.size() ||
        !graph_.passes(graph_.interactions[i.interaction()].members.front(), i.micro_batch)) {
      refuse(rank, i, "its graph has no such interaction");
    }
    const MicroBatchId first = tasks_.interaction_set(i.interaction(), i.micro_batch);
    tasks_.for_each_member_slot(rank, i.interaction(), first, [&](std::int32_t slot) {
      if (tasks_.part_of(slot) + 1 == graph_.parts) need_value(2 * slot, 0, inputs);
    });
  }

  /// Runs a computation or a fused pair; both of a pair have one span, and the first is the cause
  /// of the second.
  void run(int rank, const Inputs& inputs, bool pair) {
    const RankClock& clock = clocks_[rank];
    const Instruction* const first = &clock.instruction();
    const double start = std::max(clock.time(), inputs.time);
    double time = compute_time(graph_, *first);
    if (pair) time = (time + compute_time(graph_, first[1])) * graph_.fused_cost_factor;
    compute(rank, {start, start + time}, cause_of(rank, inputs));
    if (pair) compute(rank, {start, start + time}, clock.before());
  }

  /// The cause of an instruction's start: an input that came late, or the rank's own last work.
  Cause cause_of(int rank, const Inputs& inputs) const {
    const RankClock& clock = clocks_[rank];
    const bool waited = inputs.cause.rank >= 0 && inputs.time > clock.time();
    return waited || clock.before().rank < 0 ? inputs.cause : clock.before();
  }

  void compute(int rank, TimeSpan span, Cause cause) {
    const Instruction& i = clocks_[rank].instruction();
    clocks_[rank].run(span, cause);
    const bool gradient = makes_input_gradient(i.op);
    if (i.op != Op::forward && !gradient) return;
    publish(2 * tasks_.slot(i) + (gradient ? 1 : 0), span.end, clocks_[rank].before());
  }

  /// An interaction starts when its last member rank is there. The ranks go on, gradients wait for
  /// its end.
  void interact(int rank, const Inputs& inputs) {
    RankClock& clock = clocks_[rank];
    const Instruction& i = clock.instruction();
    Value& value = values_[set_value(i.interaction(), i.micro_batch)];
    value.latest = std::max(value.latest, inputs.time);
    const Cause here{rank, clock.next()};
    clock.pass_at_once(cause_of(rank, inputs));
    const auto members = static_cast<std::int32_t>(
        collectives_.ranks(collectives_.interaction(i.interaction(), i.micro_batch)).size());
    if (++value.arrived < members) return;
    const double latency = members > 1 ? graph_.latency : 0;
    publish(set_value(i.interaction(), i.micro_batch),
            value.latest + latency + graph_.interactions[i.interaction()].cost, here);
  }

  /// Makes a value known and wakes the ranks that wait for it.
  void publish(std::int32_t index, double end, Cause maker) {
    Value& value = values_[index];
    value.end = end;
    value.maker = maker;
    for (std::int32_t rank = value.waiting; rank >= 0; rank = next_waiting_[rank]) {
      clocks_.make_ready(rank);
    }
    value.waiting = -1;
  }

  std::string value_text(std::int32_t value) const {
    if (value >= 2 * tasks_.slots()) return "an interaction";
    return to_text(
        tasks_.instruction(value % 2 == 0 ? Op::forward : Op::input_gradient, value / 2));
  }

  /// The rank that would make a value; −1 for interactions, which several make.
  int maker_rank(std::int32_t value) const {
    if (value >= 2 * tasks_.slots()) return -1;
    return graph_.segments[tasks_.segment_of(value / 2)].rank;
  }

  /// Looks for the maker of a value in the rest of its rank's program.
  bool to_come(std::int32_t value) const {
    const int rank = maker_rank(value);
    const std::vector<Instruction>& program = schedule_.programs[rank];
    return std::any_of(program.begin() + clocks_[rank].next(), program.end(),
                       [&](const Instruction& i) {
                         return tasks_.slot(i) == value / 2 &&
                                (value % 2 == 0 ? i.op == Op::forward : makes_input_gradient(i.op));
                       });
  }

  /// Follows the ranks that wait for each other from `rank` on, until a rank comes twice or the
  /// value that it waits for will never be made.
  UserError waiting_chain(int rank) const {
    std::string waiting;
    std::vector<bool> seen(waits_for_.size(), false);
    while (!seen[rank]) {
      seen[rank] = true;
      const RankClock& clock = clocks_[rank];
      const std::int32_t value = waits_for_[rank];
      waiting += fmt::format("{}rank {} at {} ({}) waits for {}", waiting.empty() ? "" : "; ", rank,
                             clock.next(), to_text(clock.instruction()), value_text(value));
      const int maker = maker_rank(value);
      if (maker < 0) break;
      if (!to_come(value)) {
        waiting += fmt::format(", which is not in rank {}'s program", maker);
        break;
      }
      rank = maker;
    }
    return UserError("the schedule cannot run to its end", waiting,
                     "Check its order: something is missing or comes too late.");
  }

  const Schedule& schedule_;
  const PipelineGraph& graph_;
  TaskTable tasks_;
  CollectiveIndex collectives_;
  RankClocks clocks_;
  std::vector<Value> values_;
  std::vector<std::int32_t> waits_for_;     // [rank]: the value it waits for, or waited for last
  std::vector<std::int32_t> next_waiting_;  // [rank]: another rank that waits for the same value
};

}  // namespace

Timeline simulate(const Schedule& schedule, const SimulationOptions& options) {
  if (schedule.programs.size() != static_cast<std::size_t>(schedule.graph.ranks)) {
    throw UserError(fmt::format("a schedule with {} programs for {} ranks",
                                schedule.programs.size(), schedule.graph.ranks),
                    "", "Give one program per rank.");
  }
  if (options.model == NetworkModel::latency) return LatencyClock(schedule).run();
  return simulate_network(schedule, options);
}

}  // namespace heteroperf
