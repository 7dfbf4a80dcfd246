// Reads a timeline. Idle time is split by what a rank waited for: *warm-up* before its first
// computation, *imbalance* after its last one, and in between *dependency*, as long as the work
// that it waits for had not ended elsewhere, then *communication*, while the message was under way.

#include "runners/schedule/simulate/report.hpp"

#include <algorithm>
#include <limits>

#include "runners/schedule/ir/graph_index.hpp"

namespace heteroperf {
namespace {

/// Adds a wait of `rank` in [from, to]: for another rank's work until that ended, then for its
/// message.
void add_wait(const Timeline& timeline, int rank, Timeline::Cause cause, TimeSpan wait,
              RankTimes& times) {
  if (wait.end <= wait.start) return;
  const bool elsewhere = cause.rank >= 0 && cause.rank != rank;
  const double made = elsewhere ? timeline.spans[cause.rank][cause.index].end : wait.start;
  const double sent = std::clamp(made, wait.start, wait.end);
  times.dependency += sent - wait.start;
  times.communication += wait.end - sent;
}

/// Adds the waits of a rank between two computes in a model where instructions themselves block.
void add_blocked(const Timeline& timeline, int rank, std::size_t after, std::size_t before,
                 RankTimes& times) {
  for (std::size_t i = after + 1; i < before; ++i) {
    const TimeSpan wait = timeline.spans[rank][i];
    times.dependency += timeline.under_way[rank][i] - wait.start;
    times.communication += wait.end - timeline.under_way[rank][i];
  }
}

/// Sums up one rank; everything between first and last compute that is not work is a wait.
RankTimes rank_times(const Schedule& schedule, const Timeline& timeline, int rank,
                     double makespan) {
  RankTimes times;
  double first = -1, last = 0;  // first start and latest end of compute
  std::size_t last_compute = 0;
  const std::vector<Instruction>& program = schedule.programs[rank];
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (!is_compute(program[i].op)) continue;
    const TimeSpan span = timeline.spans[rank][i];
    if (first < 0) {
      first = span.start;
    } else if (!timeline.under_way.empty()) {
      add_blocked(timeline, rank, last_compute, i, times);
    } else {
      add_wait(timeline, rank, timeline.causes[rank][i], {last, span.start}, times);
    }
    const bool counted = i > 0 && program[i - 1].fused_with_next;  // as the first of its pair is
    if (!counted) times.busy += span.end - span.start;
    last = span.end;
    last_compute = i;
  }
  times.warm_up = std::max(0.0, first);
  times.span = first < 0 ? 0 : last - first;
  times.imbalance = first < 0 ? makespan : makespan - last;
  times.idle = makespan - times.busy;
  return times;
}

/// Walks from the last end of compute back over the causes.
std::vector<PathStep> critical_path(const Schedule& schedule, const Timeline& timeline) {
  PathStep step{-1, -1, {}};
  for (int rank = 0; rank < static_cast<int>(schedule.programs.size()); ++rank) {
    for (std::size_t i = 0; i < schedule.programs[rank].size(); ++i) {
      if (!is_compute(schedule.programs[rank][i].op)) continue;
      const TimeSpan span = timeline.spans[rank][i];
      if (step.rank < 0 || span.end > step.span.end) step = {rank, static_cast<int>(i), span};
    }
  }
  std::vector<PathStep> path;
  while (step.rank >= 0) {
    path.push_back(step);
    const Timeline::Cause cause = timeline.causes[step.rank][step.index];
    step = {cause.rank, cause.index, {}};
    if (step.rank >= 0) step.span = timeline.spans[step.rank][step.index];
  }
  std::reverse(path.begin(), path.end());
  return path;
}

/// The share of all ranks' time that is not work.
double bubble_rate(double busy, int ranks, double time) {
  return time > 0 ? 1 - busy / (ranks * time) : 0;
}

/// The scale of the dearest or the cheapest micro-batch.
double extreme_scale(const PipelineGraph& graph, bool largest) {
  const auto& scale = graph.micro_batch_scale;
  if (scale.empty()) return 1;
  return largest ? *std::max_element(scale.begin(), scale.end())
                 : *std::min_element(scale.begin(), scale.end());
}

/// The earliest starts of a part's passes in every segment, where a micro-batch costs `scale` and
/// every rank is free.
struct EarliestStarts {
  IdVector<SegmentId, double> forward, gradient;
};

EarliestStarts earliest_starts(const PipelineGraph& graph, const TaskTable& tasks, double scale) {
  const double share = scale / graph.parts;
  std::vector<SegmentId> order = topological_order(graph);
  EarliestStarts starts;
  starts.forward.resize(graph.segments.size(), 0);
  for (const SegmentId segment : order) {
    for (const EdgeId e : tasks.edges_in(segment)) {
      const SegmentId from = graph.edges[e].from;
      const double made = starts.forward[from] + graph.segments[from].forward * share;
      starts.forward[segment] = std::max(starts.forward[segment], made + graph.delay(e, false));
    }
  }
  starts.gradient = starts.forward;
  std::reverse(order.begin(), order.end());
  for (const SegmentId segment : order) {
    double& start = starts.gradient[segment];
    start += graph.segments[segment].forward * share;
    for (const EdgeId e : tasks.edges_out(segment)) {
      if (!graph.edges[e].gradient) continue;
      const SegmentId to = graph.edges[e].to;
      const double made = starts.gradient[to] + graph.segments[to].input_gradient * share;
      start = std::max(start, made + graph.delay(e, true));
    }
  }
  return starts;
}

/// The longest path of the dearest micro-batch: forwards down to the end, gradients back up, and
/// the weight's gradient where it ends.
double longest_path(const PipelineGraph& graph, const TaskTable& tasks) {
  const double scale = extreme_scale(graph, true);
  const EarliestStarts starts = earliest_starts(graph, tasks, scale);
  double longest = 0;
  for (const SegmentId segment : graph.segments.ids()) {
    const Segment& s = graph.segments[segment];
    if (s.micro_batches == 0) continue;
    const double work = (s.input_gradient + s.weight_gradient) * scale / graph.parts;
    longest = std::max(longest, starts.gradient[segment] + work);
  }
  return longest;
}

/// All passes of one kind of a segment: they take `work`, and none starts before `start`.
struct Passes {
  double start = 0, work = 0;
};

/// The passes on every rank. `fused`: a pair may cost less than its parts, so that nothing is known
/// of gradients but that they follow a forward.
std::vector<std::vector<Passes>> rank_passes(const PipelineGraph& graph, const TaskTable& tasks,
                                             bool fused) {
  const double scale = extreme_scale(graph, false);
  const EarliestStarts starts = earliest_starts(graph, tasks, scale);
  std::vector<std::vector<Passes>> passes(graph.ranks);
  for (const SegmentId i : graph.segments.ids()) {
    const Segment& s = graph.segments[i];
    const double each = s.forward + s.input_gradient + s.weight_gradient;
    if (s.micro_batches == 0 || each == 0) continue;
    const double passing = graph.segment_work(i) / each;
    const double forward = starts.forward[i], gradient = fused ? forward : starts.gradient[i];
    const double made = fused ? gradient : gradient + s.input_gradient * scale / graph.parts;
    std::vector<Passes>& there = passes[s.rank];
    there.push_back({forward, passing * s.forward});
    there.push_back({gradient, passing * s.input_gradient});
    there.push_back({made, passing * s.weight_gradient});
  }
  return passes;
}

}  // namespace

/// A rank ends no earlier than any time plus the work of all passes that cannot start before it.
/// Fused pairs may cost less than their parts, which shortens both bounds.
double lower_bound(const PipelineGraph& graph) {
  const TaskTable tasks(graph);
  const double factor = std::min(1.0, graph.fused_cost_factor);
  double bound = factor == 1 ? longest_path(graph, tasks) : 0;
  for (std::vector<Passes>& passes : rank_passes(graph, tasks, factor < 1)) {
    std::ranges::sort(passes, std::ranges::greater{}, &Passes::start);
    double later = 0;
    for (const Passes& each : passes) {
      later += each.work * factor;
      if (later > 0) bound = std::max(bound, each.start + later);
    }
  }
  return bound;
}

/// The makespan is the end of the critical path, which ends with the last computation.
ScheduleReport report(const Schedule& schedule, const Timeline& timeline) {
  ScheduleReport result;
  result.critical_path = critical_path(schedule, timeline);
  result.makespan = result.critical_path.empty() ? 0 : result.critical_path.back().span.end;
  double busy = 0;
  for (int rank = 0; rank < static_cast<int>(schedule.programs.size()); ++rank) {
    result.ranks.push_back(rank_times(schedule, timeline, rank, result.makespan));
    result.longest_span = std::max(result.longest_span, result.ranks.back().span);
    busy += result.ranks.back().busy;
  }
  const int ranks = schedule.graph.ranks;
  result.bubble_rate_makespan = bubble_rate(busy, ranks, result.makespan);
  result.bubble_rate_span = bubble_rate(busy, ranks, result.longest_span);
  result.lower_bound = lower_bound(schedule.graph);
  MemoryPeaks peaks = memory_peaks(schedule);
  result.peak_activations = std::move(peaks.activations);
  result.peak_memory = std::move(peaks.memory);
  return result;
}

}  // namespace heteroperf
