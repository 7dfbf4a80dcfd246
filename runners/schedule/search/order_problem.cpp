#include "runners/schedule/search/order_problem.hpp"

#include <algorithm>

#include "runners/schedule/ir/memory.hpp"

namespace heteroperf {
namespace {

/// One latency lies between an interaction's members and its end where they are on several ranks.
bool spans_ranks(const PipelineGraph& graph, const Interaction& interaction) {
  return std::any_of(interaction.members.begin(), interaction.members.end(), [&](int member) {
    return graph.segments[member].rank != graph.segments[interaction.members.front()].rank;
  });
}

}  // namespace

OrderProblem::OrderProblem(const PipelineGraph& graph, Gradients gradients) : slots_(graph) {
  delays_ = {0, graph.latency};
  for (int edge = 0; edge < static_cast<int>(graph.edges.size()); ++edge) {
    delays_.push_back(graph.activation_delay(edge));
    delays_.push_back(graph.gradient_delay(edge));
  }
  for (const Segment& segment : graph.segments) {
    split_.push_back(gradients == Gradients::split && segment.weight_gradient > 0);
  }
  interaction_first_.push_back(3 * slots());
  for (const Interaction& interaction : graph.interactions) {
    const int passing = graph.segments[interaction.members.front()].micro_batches;
    const int sets = (passing + interaction.every - 1) / interaction.every;
    interaction_first_.push_back(interaction_first_.back() + sets);
  }
  add_tasks();
  add_dependencies();
  find_bottom_levels();
}

void OrderProblem::add_tasks() {
  const std::int32_t n = slots();
  tasks_.resize(interaction_first_.back() + 1);
  first_.assign(ranks() + 1, 0);
  for (std::int32_t slot = 0; slot < n; ++slot) {
    const int segment = slots_.segment_of(slot), micro_batch = slots_.micro_batch_of(slot);
    const Segment& s = graph().segments[segment];
    const double activation = s.activation / graph().parts;
    const double gradient = graph().input_gradient(segment, micro_batch);
    const double weight = graph().weight_gradient(segment, micro_batch);
    const auto add = [&](std::int32_t id, double cost, Op op) {
      tasks_[id] = {cost, 0, memory_change(op) * activation, s.rank, segment, micro_batch, 0, 0};
      ++first_[s.rank + 1];
    };
    add(slot, graph().forward(segment, micro_batch), Op::forward);
    if (split_[segment]) {
      add(n + slot, gradient, Op::input_gradient);
      add(2 * n + slot, weight, Op::weight_gradient);
    } else {
      add(n + slot, gradient + weight, Op::backward);
    }
  }
  for (std::size_t i = 0; i < graph().interactions.size(); ++i) {
    for (std::int32_t id = interaction_first_[i]; id < interaction_first_[i + 1]; ++id) {
      tasks_[id].cost = graph().interactions[i].cost;
    }
  }
  std::vector<double> work(ranks(), 0);
  for (std::size_t i = 0; i < graph().segments.size(); ++i) {
    work[graph().segments[i].rank] += graph().segment_work(static_cast<int>(i));
  }
  period_ = *std::max_element(work.begin(), work.end()) / graph().micro_batches;
  for (int rank = 0; rank < ranks(); ++rank) first_[rank + 1] += first_[rank];
}

std::int32_t OrderProblem::interaction_task(int interaction, int micro_batch) const {
  const Interaction& x = graph().interactions[interaction];
  const int first = graph().segments[x.members.front()].first_micro_batch;
  return interaction_first_[interaction] + (micro_batch - first) / x.every;
}

/// Calls visit(before, after, number of the delay between them).
template <class Visit>
void OrderProblem::for_each_dependency(Visit visit) const {
  const std::int32_t n = slots();
  std::vector<bool> spans;
  for (const Interaction& x : graph().interactions) spans.push_back(spans_ranks(graph(), x));
  for (std::int32_t slot = 0; slot < n; ++slot) {
    const int segment = slots_.segment_of(slot), micro_batch = slots_.micro_batch_of(slot);
    slots_.for_each_forward_input(slot, [&](std::int32_t other, int edge) {
      visit(other, slot, edge < 0 ? 0 : 2 + 2 * edge);
    });
    visit(slot, n + slot, 0);
    slots_.for_each_gradient_input(slot, [&](std::int32_t other, int edge) {
      visit(n + other, n + slot, edge < 0 ? 0 : 3 + 2 * edge);
    });
    for (const int x : slots_.interactions_of(segment)) {
      const std::int32_t set = interaction_task(x, micro_batch);
      visit(slot, set, spans[x] ? 1 : 0);
      visit(set, n + slot, 0);
    }
    if (split_[segment]) visit(n + slot, 2 * n + slot, 0);
  }
}

void OrderProblem::add_dependencies() {
  std::vector<std::int32_t> place(tasks_.size() + 1, 0);
  for_each_dependency([&](std::int32_t before, std::int32_t after, std::int32_t) {
    ++place[before + 1];
    ++tasks_[after].inputs;
  });
  for (std::size_t id = 0; id < tasks_.size(); ++id) {
    place[id + 1] += place[id];
    tasks_[id].first_successor = place[id];
  }
  successors_.resize(place.back());
  for_each_dependency([&](std::int32_t before, std::int32_t after, std::int32_t delay) {
    successors_[place[before]++] = {after, delay};
  });
}

void OrderProblem::find_bottom_levels() {
  std::vector<std::int32_t> waits(size()), sorted;
  sorted.reserve(size());
  for (std::int32_t id = 0; id < size(); ++id) {
    waits[id] = tasks_[id].inputs;
    if (waits[id] == 0) sorted.push_back(id);
  }
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (const Successor& next : successors(sorted[i])) {
      if (--waits[next.task] == 0) sorted.push_back(next.task);
    }
  }
  for (auto id = sorted.rbegin(); id != sorted.rend(); ++id) {
    double after = 0;
    for (const Successor& next : successors(*id)) {
      after = std::max(after, tasks_[next.task].bottom_level + latency(next));
    }
    tasks_[*id].bottom_level = tasks_[*id].cost + after;
  }
}

Op OrderProblem::op(std::int32_t id) const {
  if (id < slots()) return Op::forward;
  if (id >= 3 * slots()) return Op::interact;
  if (id >= 2 * slots()) return Op::weight_gradient;
  return split_[tasks_[id].segment] ? Op::input_gradient : Op::backward;
}

std::vector<std::int32_t> OrderProblem::order_of(const Schedule& schedule) const {
  std::vector<std::int32_t> order;
  order.reserve(ordered());
  for (const std::vector<Instruction>& program : schedule.programs) {
    for (const Instruction& i : program) {
      if (!is_compute(i.op)) continue;
      const std::int32_t slot = slots_.slot(i.segment, i.micro_batch, i.part);
      if (slot < 0 || i.fused_with_next || i.op == Op::recompute) return {};
      const bool split = split_[i.segment];
      if (i.op == Op::forward) order.push_back(slot);
      if (i.op == Op::input_gradient || i.op == Op::backward) order.push_back(slots() + slot);
      if (split && (i.op == Op::weight_gradient || i.op == Op::backward)) {
        order.push_back(2 * slots() + slot);
      }
    }
  }
  if (static_cast<std::int32_t>(order.size()) != ordered()) return {};
  return order;
}

void OrderProblem::append_instructions(std::int32_t id, Schedule& schedule) const {
  if (!is_interaction(id)) {
    const std::int32_t slot = id % slots();
    schedule.programs[tasks_[id].rank].push_back(compute(
        op(id), slots_.segment_of(slot), slots_.micro_batch_of(slot), slots_.part_of(slot)));
    return;
  }
  const auto after = std::upper_bound(interaction_first_.begin(), interaction_first_.end(), id);
  const int index = static_cast<int>(after - interaction_first_.begin()) - 1;
  const Interaction& x = graph().interactions[index];
  Instruction instruction;
  instruction.op = Op::interact;
  instruction.edge = index;
  instruction.micro_batch = graph().segments[x.members.front()].first_micro_batch +
                            (id - interaction_first_[index]) * x.every;
  std::vector<int> ranks;
  for (const int member : x.members) ranks.push_back(graph().segments[member].rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  for (const int rank : ranks) schedule.programs[rank].push_back(instruction);
}

Schedule OrderProblem::to_schedule(std::span<const std::int32_t> sequence) const {
  Schedule schedule;
  schedule.graph = graph();
  schedule.programs.resize(ranks());
  for (int rank = 0; rank < ranks(); ++rank) {
    schedule.programs[rank].reserve(first_[rank + 1] - first_[rank]);
  }
  for (const std::int32_t id : sequence) append_instructions(id, schedule);
  return schedule;
}

}  // namespace heteroperf
