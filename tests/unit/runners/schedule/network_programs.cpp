#include "tests/unit/runners/schedule/network_programs.hpp"

#include "metrics/base/error.hpp"
#include "runners/schedule/ir/graph_index.hpp"

namespace heteroperf {

Instruction act(Op op, EdgeId edge, MicroBatchId micro_batch, int peer, int group) {
  Instruction i = compute(op, -1, micro_batch);
  i.edge = edge;
  i.peer = peer;
  i.group = group;
  return i;
}

Instruction plain(Op op, SegmentId segment) {
  Instruction i;
  i.op = op;
  i.segment = segment;
  return i;
}

Segment on_rank(int rank, double forward) {
  Segment segment;
  segment.rank = rank;
  segment.forward = forward;
  return segment;
}

void name_ends(Schedule& schedule) {
  for (std::vector<Instruction>& program : schedule.programs) {
    for (Instruction& i : program) {
      if (!is_message(i.op) || !schedule.graph.edges.contains(i.edge)) continue;
      const Edge& edge = schedule.graph.edges[i.edge];
      i.segment = is_send(i.op) == carries_gradient(i.op) ? edge.to : edge.from;
    }
  }
}

Schedule forwards(const std::vector<double>& costs,
                  const std::vector<std::pair<SegmentId, SegmentId>>& edges, int micro_batches,
                  std::vector<std::vector<Instruction>> programs) {
  Schedule schedule;
  schedule.level = ScheduleLevel::lowered;
  PipelineGraph& graph = schedule.graph;
  graph.ranks = static_cast<int>(costs.size());
  graph.micro_batches = micro_batches;
  graph.latency = 1;
  for (const double cost : costs) {
    graph.segments.push_back(on_rank(static_cast<int>(graph.segments.size()), cost));
  }
  for (const auto& [from, to] : edges) graph.edges.push_back({from, to, 6, true});
  normalise(graph);
  schedule.programs = std::move(programs);
  name_ends(schedule);
  return schedule;
}

SimulationOptions options(NetworkModel model, double bandwidth) {
  SimulationOptions result;
  result.model = model;
  result.network.bandwidth = bandwidth;
  return result;
}

SimulationOptions links(double bandwidth) { return options(NetworkModel::links, bandwidth); }

Schedule stream(int count) {
  std::vector<std::vector<Instruction>> programs(2);
  for (const MicroBatchId k : first_ids<MicroBatchId>(count)) {
    programs[0].push_back(compute(Op::forward, 0, k));
    programs[0].push_back(act(Op::send_act, 0, k, 1));
    programs[1].push_back(act(Op::recv_act, 0, k, 0));
    programs[1].push_back(compute(Op::forward, 1, k));
  }
  return forwards({1, 2}, {{0, 1}}, count, programs);
}

Spans transfers(const Timeline& timeline) {
  Spans spans;
  for (const Timeline::Transfer& t : timeline.transfers) spans.push_back({t.start, t.end});
  return spans;
}

std::string error_of(const Schedule& schedule, const SimulationOptions& how) {
  try {
    simulate(schedule, how);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace heteroperf
