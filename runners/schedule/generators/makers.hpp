#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/ir/placement.hpp"

// The makers behind the table of generators, and what they share: the checks of a request, the
// graph that it describes, and the rhythms that several schedules have. In every maker p is the
// number of ranks, r a rank, m the number of micro-batches and v the chunks per rank.

namespace heteroperf {

// fill_and_drain.cpp
Schedule make_gpipe(const ScheduleRequest& request);
Schedule make_1f1b(const ScheduleRequest& request);
// interleaved.cpp
Schedule make_interleaved_1f1b(const ScheduleRequest& request);
Schedule make_looped_bfs(const ScheduleRequest& request);
Schedule make_seq1f1b(const ScheduleRequest& request);
// zero_bubble.cpp
Schedule make_zb_h1(const ScheduleRequest& request);
Schedule make_zb_h2(const ScheduleRequest& request);
Schedule make_zb_v(const ScheduleRequest& request);
// controllable_memory.cpp
Schedule make_v_half(const ScheduleRequest& request);
Schedule make_v_min(const ScheduleRequest& request);
// bidirectional.cpp
Schedule make_chimera(const ScheduleRequest& request);
Schedule make_dualpipe(const ScheduleRequest& request);
Schedule make_dualpipev(const ScheduleRequest& request);
// searched.cpp
Schedule make_zb_1p(const ScheduleRequest& request);
Schedule make_zb_2p(const ScheduleRequest& request);
Schedule make_wave(const ScheduleRequest& request);
Schedule make_auto(const ScheduleRequest& request);

enum class ChunkRule {
  fixed,  ///< the schedule has this number
  free,   ///< it has this number where the request names none
};
enum class PartRule { one, any };

/// The rules that a schedule states about itself, for the checks that all share.
struct RequestRules {
  const char* name;
  int chunks = 1;
  ChunkRule chunk_rule = ChunkRule::fixed;
  PartRule part_rule = PartRule::one;
  int most_chunks = 1 << 20;
};

/// The numbers of a request, from its graph where it has one.
struct RequestSizes {
  int ranks = 1, micro_batches = 1, chunks = 1, parts = 1;
};

/// Throws UserError with everything wrong, before anything large is allocated: numbers out of
/// range, more than `most_tasks`, costs that do not fit the ranks, chunks or parts the schedule
/// lacks.
RequestSizes check_request(const ScheduleRequest& request, const RequestRules& rules);

/// The request's graph, or the chain it describes. Throws UserError where the graph is no chain
/// with segment s at its place of `placement`.
PipelineGraph chain_for(const ScheduleRequest& request, const RequestRules& rules,
                        const RequestSizes& sizes, ChainPlacement placement);
/// Does the same for the two copies of bidirectional_graph().
PipelineGraph bidirectional_for(const ScheduleRequest& request, const RequestRules& rules,
                                const RequestSizes& sizes);

/// Makes a compute-only schedule on a graph. Calls fill(rank, program) for every rank, which writes
/// its program.
template <class Fill>
Schedule compute_schedule(const RequestRules& rules, int chunks, PipelineGraph graph, Fill fill) {
  Schedule schedule{rules.name, chunks, ScheduleLevel::compute, std::move(graph), {}};
  schedule.programs.resize(schedule.graph.ranks);
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) fill(rank, schedule.programs[rank]);
  return schedule;
}

/// Does the same on the request's chain.
template <class Fill>
Schedule chain_schedule(const ScheduleRequest& request, const RequestRules& rules,
                        const RequestSizes& sizes, ChainPlacement placement, Fill fill) {
  return compute_schedule(rules, sizes.chunks, chain_for(request, rules, sizes, placement), fill);
}

/// The numbers next to `value` that `valid` accepts, within 1 … most, as "6 or 8".
template <class Valid>
std::string nearest_numbers(int value, int most, Valid valid) {
  std::string text;
  int below = std::min(value, most), above = std::max(value, 1);
  while (below >= 1 && !valid(below)) --below;
  while (above <= most && !valid(above)) ++above;
  if (below >= 1) text = std::to_string(below);
  if (above <= most && above != below) text += (text.empty() ? "" : " or ") + std::to_string(above);
  return text;
}

/// The 1F1B rhythm: min(count, warm_up) forwards (the *warm-up*, which fills the pipeline), then
/// one forward and one gradient in turn, then the gradients that remain. Calls forward(k) and
/// gradient(k) once for each k < count, ascending.
template <class Forward, class Gradient>
void one_forward_one_backward(int count, int warm_up, Forward forward, Gradient gradient) {
  int next = 0;
  while (next < std::min(count, warm_up)) forward(next++);
  for (int i = 0; i < count; ++i) {
    if (next < count) forward(next++);
    gradient(i);
  }
}

}  // namespace heteroperf
