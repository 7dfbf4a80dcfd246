// One rank's own way through a step.
//
// The simulator gives each position the time of its slowest replica. A faster replica ends its
// passes sooner and then waits. Here the program of a position is run again for one rank with the
// times of its own replica: inputs of other ranks arrive when the simulated timeline has them, its
// own results count only through the order of its program. Passes of stages that it does not have
// take it no time. This answers how busy each rank is and how long it waits for messages, which the
// timeline of the position cannot.
#include "runners/plan/ready/replica_clock.hpp"

#include <algorithm>

#include "metrics/base/error.hpp"

namespace heteroperf {

ReplicaClock::ReplicaClock(const StageTimes& times, const Schedule& schedule,
                           const Timeline& timeline)
    : times_(times),
      schedule_(schedule),
      timeline_(timeline),
      tasks_(schedule.graph),
      made_(2 * tasks_.slots()) {
  for (std::size_t q = 0; q < schedule.programs.size(); ++q) {
    for (std::size_t k = 0; k < schedule.programs[q].size(); ++k) {
      const Instruction& i = schedule.programs[q][k];
      if (i.op == Op::forward || makes_input_gradient(i.op))
        made_[value(i)] = timeline.spans[q][k].end;
    }
  }
}

/// A slot is a micro-batch in a segment; it has two values.
std::int32_t ReplicaClock::value(const Instruction& i) const {
  return 2 * tasks_.slot(i) + (makes_input_gradient(i.op) ? 1 : 0);
}

/// Inputs that other ranks make; for the rest the order of the program holds. Within a position
/// nothing is under way.
ReplicaClock::Arrival ReplicaClock::latest_input(const Instruction& i, const RankRole& role) const {
  Arrival latest;
  const PipelineGraph& graph = schedule_.graph;
  const int position = graph.segments[i.segment].rank;
  const int gradient = i.op == Op::forward ? 0 : 1;
  tasks_.for_each_input(i.op, tasks_.slot(i), [&](std::int32_t slot, EdgeId edge) {
    if (edge == EdgeId::none() || role.has(tasks_.segment_of(slot))) return;
    const bool near = graph.segments[tasks_.segment_of(slot)].rank == position;
    const double made = made_[2 * slot + gradient];
    const double time = made + (near ? 0 : graph.delay(edge, gradient == 1));
    if (time > latest.time) latest = {made, time};
  });
  return latest;
}

double ReplicaClock::compute_s(const Instruction& i, const RankRole& role) const {
  const auto part = std::ranges::find(role.parts, i.segment, &RankRole::Part::segment);
  HETEROPERF_EXPECT(part != role.parts.end());
  const StageTimes::Compute& cost = times_.compute[part->stage][part->replica];
  switch (i.op) {
    case Op::forward:
    case Op::recompute:
      return cost.forward_s;
    case Op::input_gradient:
      return cost.input_gradient_s;
    case Op::weight_gradient:
      return cost.weight_gradient_s;
    default:
      return cost.input_gradient_s + cost.weight_gradient_s;
  }
}

ReplicaPass ReplicaClock::run(const RankRole& role) const {
  ReplicaPass pass;
  double free = 0;
  bool started = false;
  for (const Instruction& i : schedule_.programs[role.position.index()]) {
    if (!is_compute(i.op) || !role.has(i.segment)) {
      pass.spans.push_back({free, free});
      continue;
    }
    const Arrival input = latest_input(i, role);
    const double start = std::max(free, input.time), taken = compute_s(i, role);
    // A wait before the first computation is the pipeline's filling, and the part before the input
    // was made is another rank's work.
    if (started) pass.communication_s += start - std::clamp(input.made, free, start);
    pass.spans.push_back({start, start + taken});
    pass.compute_s += taken;
    free = start + taken;
    started = true;
  }
  return pass;
}

}  // namespace heteroperf
