// The order of the passes of a schedule of several chunks.
//
// The schedule's own generator makes the programs, with equal costs for all passes, and join()
// merges them into one list in which every pass stands after those that it needs. The list serves
// chunk_ends(), which times it with any costs without asking the generator again: the search times
// many drafts with the same numbers of positions, chunks and micro-batches.
//
// Memory needs the moments at which a position keeps the most. A moment counts the micro-batches of
// each chunk between F and B and between B and W. Which moment is the fullest depends on the sizes
// of the chunks, so all are kept that no other exceeds in every count.
//
// The order of passes is known beforehand (PassOrder) and lists every pass after those that it
// needs. So one walk over the list is enough: each pass starts at the later of the end of its
// position's pass before it and the arrival of its input. A *slot* is one micro-batch in one stage;
// its neighbours in the model lie `micro_batches` slots away. Messages between stages of one
// position take no time, because the scorer gives them none.
#include "runners/plan/search/score/pass_order.hpp"

#include <algorithm>
#include <cstddef>
#include <set>

#include "metrics/base/error.hpp"
#include "runners/schedule/generators/generator.hpp"

namespace heteroperf {
namespace {

bool is_within(const std::vector<int>& a, const std::vector<int>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), [](int x, int y) { return x <= y; });
}

}  // namespace

PassOrder::PassOrder(const std::string& schedule, int positions, int chunks, int micro_batches)
    : micro_batches_(micro_batches), stages_of_(positions) {
  ScheduleRequest request;
  request.ranks = positions;
  request.micro_batches = micro_batches;
  request.chunks = chunks;
  request.costs = uniform_costs(positions, 1, 1, 1, 0);
  const Schedule made = find_generator(schedule).make(request);
  // Segments stand in the model's order, so the chunks of a position are numbered along the model.
  for (const Segment& segment : made.graph.segments) {
    const PositionId position(segment.rank);
    auto& stages = stages_of_[position];
    chunk_of_.push_back(static_cast<int>(stages.size()));
    stages.emplace_back(position_of_.size());
    position_of_.push_back(position);
  }
  join(made.programs);
  for (const Program& program : made.programs) fullest_.push_back(fullest_of(program));
}

/// Goes down and up the positions, each as far as it gets.
void PassOrder::join(const std::vector<Program>& programs) {
  const std::size_t stages = position_of_.size();
  std::vector<std::size_t> next(programs.size(), 0);
  std::vector<char> forward(stages * micro_batches_, 0), gradient = forward;
  const auto slot = [&](SegmentId segment, MicroBatchId micro_batch) {
    return segment.index() * micro_batches_ + micro_batch.index();
  };
  const auto can = [&](const Instruction& i) {
    if (i.op == Op::weight_gradient) return true;
    if (i.op == Op::forward)
      return i.segment == 0 || forward[slot(i.segment - 1, i.micro_batch)] != 0;
    return i.segment.index() + 1 == stages || gradient[slot(i.segment + 1, i.micro_batch)] != 0;
  };
  const auto advance = [&](std::size_t q) {
    const std::size_t from = next[q];
    for (; next[q] < programs[q].size() && can(programs[q][next[q]]); ++next[q]) {
      const Instruction& i = programs[q][next[q]];
      passes_.push_back({i.op, StageId(i.segment.value()), i.micro_batch});
      if (i.op == Op::weight_gradient) continue;
      (i.op == Op::forward ? forward : gradient)[slot(i.segment, i.micro_batch)] = 1;
    }
    return next[q] > from;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t q = 0; q < programs.size(); ++q) moved = advance(q) || moved;
    for (std::size_t q = programs.size(); q-- > 0;) moved = advance(q) || moved;
  }
  for (std::size_t q = 0; q < programs.size(); ++q) {
    // A program that stops half-way would be a deadlock of the generator.
    HETEROPERF_ENSURE(next[q] == programs[q].size());
  }
}

std::vector<std::vector<int>> PassOrder::fullest_of(const Program& program) const {
  const std::size_t chunks = position_of_.size() / stages_of_.size();
  std::vector<int> kept(2 * chunks, 0);
  std::set<std::vector<int>> moments;
  for (const Instruction& i : program) {
    const std::size_t chunk = chunk_of_[StageId(i.segment.value())];
    kept[chunk] += i.op == Op::forward ? 1 : i.op == Op::weight_gradient ? 0 : -1;
    if (i.op == Op::input_gradient) ++kept[chunks + chunk];
    if (i.op == Op::weight_gradient) --kept[chunks + chunk];
    if (i.op == Op::forward || i.op == Op::input_gradient) moments.insert(kept);
  }
  std::vector<std::vector<int>> result;
  // In falling lexicographic order a moment comes after all those that exceed it.
  for (auto moment = moments.rbegin(); moment != moments.rend(); ++moment) {
    const bool less =
        std::ranges::any_of(result, [&](const auto& larger) { return is_within(*moment, larger); });
    if (!less) result.push_back(*moment);
  }
  return result;
}

ChunkEnds chunk_ends(const std::vector<ClockStage>& stages, const PassOrder& order) {
  const std::size_t micro_batches = order.micro_batches();
  std::vector<double> forward_end(stages.size() * micro_batches), backward_end(forward_end);
  ChunkEnds ends{IdVector<PositionId, double>(order.positions(), 0),
                 IdVector<StageId, double>(stages.size(), 0)};
  for (const PassOrder::Pass& pass : order.passes()) {
    const std::size_t s = pass.stage.index();
    const std::size_t slot = s * micro_batches + pass.micro_batch.index();
    const ClockStage& stage = stages[s];
    double& free = ends.positions[order.position_of(pass.stage)];
    if (pass.op == Op::forward) {
      const double arrived =
          s > 0 ? forward_end[slot - micro_batches] + stages[s - 1].activation_s : 0;
      free = forward_end[slot] = std::max(free, arrived) + stage.forward_s;
      continue;
    }
    if (pass.op != Op::weight_gradient) {
      const bool last = s + 1 == stages.size();
      const double arrived = last ? 0 : backward_end[slot + micro_batches] + stage.gradient_s;
      // Recomputation needs no gradient: it fills the wait.
      free = std::max(free + stage.recompute_s, arrived) + stage.input_gradient_s;
    }
    if (pass.op != Op::input_gradient) free += stage.weight_gradient_s;
    if (pass.op != Op::weight_gradient) backward_end[slot] = free;
    if (pass.op != Op::input_gradient) ends.stages[pass.stage] = free;
  }
  return ends;
}

}  // namespace heteroperf
