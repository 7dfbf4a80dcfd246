#include "runners/schedule/simulate/simulator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/schedule/ir/collective_index.hpp"
#include "runners/schedule/ir/task_table.hpp"
#include "runners/schedule/simulate/network_simulator.hpp"

namespace heteroperf {
namespace {

/// The latency model. A *value* is what an instruction makes and others wait for: the forward of a
/// slot (2·slot), its input's gradient (2·slot + 1), or the end of an interaction's set.
class LatencyClock {
 public:
  explicit LatencyClock(const Schedule& schedule)
      : schedule_(schedule),
        graph_(schedule.graph),
        tasks_(graph_),
        collectives_(tasks_),
        values_(2 * static_cast<std::size_t>(tasks_.slots()) + collectives_.size() -
                collectives_.first_interaction()),
        ranks_(schedule.programs.size()) {}

  Timeline run() {
    for (const std::vector<Instruction>& program : schedule_.programs) {
      timeline_.spans.emplace_back(program.size());
      timeline_.causes.emplace_back(program.size());
    }
    for (int rank = static_cast<int>(ranks_.size()) - 1; rank >= 0; --rank) ready_.push_back(rank);
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      advance(rank);
    }
    require_finished();
    return std::move(timeline_);
  }

 private:
  using Cause = Timeline::Cause;
  static constexpr double unknown = -1;

  struct Value {
    double end = unknown;
    Cause maker;
    std::int32_t waiting = -1;  // first of the ranks that wait for it
    std::int32_t arrived = 0;   // ranks that have reached an interaction
    double latest = 0;          // of those
  };
  struct Rank {
    double time = 0;
    std::int32_t next = 0;           // instruction
    std::int32_t last = -1;          // the compute instruction before it
    std::int32_t waits_for = -1;     // value
    std::int32_t next_waiting = -1;  // rank that waits for the same value
  };
  /// The latest of an instruction's inputs, or the value that is not there yet.
  struct Inputs {
    double time = 0;
    Cause cause;
    std::int32_t missing = -1;
  };

  void advance(int rank) {
    Rank& state = ranks_[rank];
    const std::vector<Instruction>& program = schedule_.programs[rank];
    const auto size = static_cast<std::int32_t>(program.size());
    while (state.next < size) {
      const Instruction& instruction = program[state.next];
      const bool pair = instruction.fused_with_next && state.next + 1 < size;
      Inputs inputs;
      need(rank, instruction, inputs);
      if (pair) need(rank, program[state.next + 1], inputs);
      if (inputs.missing >= 0) return wait(rank, inputs.missing);
      pair ? run_pair(rank, inputs) : run_one(rank, inputs);
    }
  }

  void wait(int rank, std::int32_t value) {
    ranks_[rank].waits_for = value;
    ranks_[rank].next_waiting = values_[value].waiting;
    values_[value].waiting = rank;
  }

  void need_value(std::int32_t value, double latency, Inputs& inputs) const {
    const Value& v = values_[value];
    if (v.end == unknown) {
      inputs.missing = value;
    } else if (v.end + latency > inputs.time) {
      inputs.time = v.end + latency;
      inputs.cause = v.maker;
    }
  }

  std::int32_t slot_of(int rank, const Instruction& i) const {
    const std::int32_t slot = tasks_.slot(i.segment, i.micro_batch, i.part);
    if (slot >= 0 && graph_.segments[i.segment].rank == rank) return slot;
    throw UserError(fmt::format("rank {} cannot run {}", rank, to_text(i)),
                    "its graph has no such segment, micro-batch or part there",
                    "Check the schedule's programs.");
  }

  std::int32_t set_of(int rank, const Instruction& i) const {
    if (i.edge >= 0 && i.edge < static_cast<int>(graph_.interactions.size()) &&
        graph_.passes(graph_.interactions[i.edge].members.front(), i.micro_batch)) {
      return set_value(i.edge, i.micro_batch);
    }
    throw UserError(fmt::format("rank {} cannot run {}", rank, to_text(i)),
                    "its graph has no such interaction", "Check the schedule's programs.");
  }

  std::int32_t set_value(int interaction, int micro_batch) const {
    return 2 * tasks_.slots() + collectives_.interaction(interaction, micro_batch) -
           collectives_.first_interaction();
  }

  void need(int rank, const Instruction& i, Inputs& inputs) const {
    if (i.op == Op::interact) return need_members(rank, i, inputs);
    if (!is_compute(i.op)) return;
    const std::int32_t slot = slot_of(rank, i);
    switch (i.op) {
      case Op::forward:
        tasks_.for_each_forward_input(slot, [&](std::int32_t other, int edge) {
          need_value(2 * other, edge < 0 ? 0 : graph_.activation_delay(edge), inputs);
        });
        break;
      case Op::input_gradient:
      case Op::backward:
        need_value(2 * slot, 0, inputs);
        tasks_.for_each_gradient_input(slot, [&](std::int32_t other, int edge) {
          need_value(2 * other + 1, edge < 0 ? 0 : graph_.gradient_delay(edge), inputs);
        });
        for (const int x : tasks_.interactions_of(i.segment)) {
          need_value(set_value(x, i.micro_batch), 0, inputs);
        }
        break;
      case Op::weight_gradient:
        need_value(2 * slot + 1, 0, inputs);
        break;
      default:  // a second forward
        need_value(2 * slot, 0, inputs);
    }
  }

  /// An interaction needs the forward of this rank's members for every micro-batch of the set.
  void need_members(int rank, const Instruction& i, Inputs& inputs) const {
    set_of(rank, i);
    const Interaction& x = graph_.interactions[i.edge];
    const int first = tasks_.interaction_set(i.edge, i.micro_batch);
    for (const int member : x.members) {
      if (graph_.segments[member].rank != rank) continue;
      for (int k = first; k < first + x.every && graph_.passes(member, k); ++k) {
        need_value(2 * tasks_.slot(member, k, graph_.parts - 1), 0, inputs);
      }
    }
  }

  void run_one(int rank, const Inputs& inputs) {
    Rank& state = ranks_[rank];
    const Instruction& instruction = schedule_.programs[rank][state.next];
    if (instruction.op == Op::interact) return interact(rank, inputs);
    if (!is_compute(instruction.op)) {
      stamp(rank, state.time, state.time, inputs);
      return void(++state.next);
    }
    const double start = std::max(state.time, inputs.time);
    stamp(rank, start, start + compute_time(graph_, instruction), inputs);
    finish_compute(rank, start + compute_time(graph_, instruction));
  }

  void run_pair(int rank, const Inputs& inputs) {
    const Rank& state = ranks_[rank];
    const Instruction* pair = &schedule_.programs[rank][state.next];
    const double start = std::max(state.time, inputs.time);
    const double end = start + (compute_time(graph_, pair[0]) + compute_time(graph_, pair[1])) *
                                   graph_.fused_cost_factor;
    for (int i = 0; i < 2; ++i) {
      stamp(rank, start, end, inputs);
      finish_compute(rank, end);
    }
  }

  void stamp(int rank, double start, double end, const Inputs& inputs) {
    const Rank& state = ranks_[rank];
    timeline_.spans[rank][state.next] = {start, end};
    const bool waited = inputs.cause.rank >= 0 && inputs.time > state.time;
    timeline_.causes[rank][state.next] = waited           ? inputs.cause
                                         : state.last < 0 ? inputs.cause
                                                          : Cause{rank, state.last};
  }

  void finish_compute(int rank, double end) {
    Rank& state = ranks_[rank];
    const Instruction& i = schedule_.programs[rank][state.next];
    state.time = end;
    state.last = state.next++;
    const std::int32_t slot = tasks_.slot(i.segment, i.micro_batch, i.part);
    if (i.op == Op::forward) publish(2 * slot, end, {rank, state.last});
    if (i.op == Op::input_gradient || i.op == Op::backward) {
      publish(2 * slot + 1, end, {rank, state.last});
    }
  }

  /// Starts when the last member rank is there; the ranks go on, gradients wait for its end.
  void interact(int rank, const Inputs& inputs) {
    Rank& state = ranks_[rank];
    const Instruction& i = schedule_.programs[rank][state.next];
    Value& value = values_[set_value(i.edge, i.micro_batch)];
    value.latest = std::max(value.latest, inputs.time);
    stamp(rank, state.time, state.time, inputs);
    const Cause here{rank, state.next++};
    const auto members = static_cast<std::int32_t>(
        collectives_.ranks(collectives_.interaction(i.edge, i.micro_batch)).size());
    if (++value.arrived < members) return;
    const double latency = members > 1 ? graph_.latency : 0;
    publish(set_value(i.edge, i.micro_batch),
            value.latest + latency + graph_.interactions[i.edge].cost, here);
  }

  void publish(std::int32_t index, double end, Cause maker) {
    Value& value = values_[index];
    value.end = end;
    value.maker = maker;
    for (std::int32_t rank = value.waiting; rank >= 0; rank = ranks_[rank].next_waiting) {
      ranks_[rank].waits_for = -1;
      ready_.push_back(rank);
    }
    value.waiting = -1;
  }

  void require_finished() const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].waits_for >= 0) throw stuck(static_cast<int>(rank));
    }
  }

  std::string value_text(std::int32_t value) const {
    if (value >= 2 * tasks_.slots()) return "an interaction";
    const std::int32_t slot = value / 2;
    return to_text(heteroperf::compute(value % 2 == 0 ? Op::forward : Op::input_gradient,
                                       tasks_.segment_of(slot), tasks_.micro_batch_of(slot),
                                       tasks_.part_of(slot)));
  }

  /// The rank that would make a value; −1 for interactions, which several make.
  int maker_rank(std::int32_t value) const {
    if (value >= 2 * tasks_.slots()) return -1;
    return graph_.segments[tasks_.segment_of(value / 2)].rank;
  }

  /// Whether the rest of the maker's program makes a value.
  bool to_come(std::int32_t value) const {
    const std::int32_t slot = value / 2;
    const int rank = maker_rank(value);
    const std::vector<Instruction>& program = schedule_.programs[rank];
    return std::any_of(program.begin() + ranks_[rank].next, program.end(),
                       [&](const Instruction& i) {
                         if (tasks_.slot(i.segment, i.micro_batch, i.part) != slot) return false;
                         if (value % 2 == 0) return i.op == Op::forward;
                         return i.op == Op::input_gradient || i.op == Op::backward;
                       });
  }

  UserError stuck(int rank) const {
    std::string waiting;
    std::vector<bool> seen(ranks_.size(), false);
    while (!seen[rank]) {
      seen[rank] = true;
      const Rank& state = ranks_[rank];
      waiting += fmt::format("{}rank {} at {} ({}) waits for {}", waiting.empty() ? "" : "; ", rank,
                             state.next, to_text(schedule_.programs[rank][state.next]),
                             value_text(state.waits_for));
      const int maker = maker_rank(state.waits_for);
      if (maker < 0) break;
      if (!to_come(state.waits_for)) {
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
  std::vector<Value> values_;
  std::vector<Rank> ranks_;
  std::vector<std::int32_t> ready_;
  Timeline timeline_;
};

void require_programs(const Schedule& schedule) {
  if (schedule.programs.size() == static_cast<std::size_t>(schedule.graph.ranks)) return;
  throw UserError(fmt::format("a schedule with {} programs for {} ranks", schedule.programs.size(),
                              schedule.graph.ranks),
                  "", "Give one program per rank.");
}

}  // namespace

double compute_time(const PipelineGraph& graph, const Instruction& i) {
  switch (i.op) {
    case Op::forward:
    case Op::recompute:
      return graph.forward(i.segment, i.micro_batch);
    case Op::input_gradient:
      return graph.input_gradient(i.segment, i.micro_batch);
    case Op::weight_gradient:
      return graph.weight_gradient(i.segment, i.micro_batch);
    case Op::backward:
      return graph.input_gradient(i.segment, i.micro_batch) +
             graph.weight_gradient(i.segment, i.micro_batch);
    default:
      return 0;
  }
}

Timeline simulate(const Schedule& schedule, const SimulationOptions& options) {
  require_programs(schedule);
  if (options.model == NetworkModel::latency) return LatencyClock(schedule).run();
  return simulate_network(schedule, options);
}

}  // namespace heteroperf
