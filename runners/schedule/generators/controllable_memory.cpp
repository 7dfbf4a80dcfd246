// v-half and v-min: schedules on a V with half and a third of 1F1B's memory (arXiv 2405.15362).
//
// The idea is a *building block*: the slots at which one micro-batch has its F0, F1 (chunks 0 and
// 1) and B1, B0 on every rank. Repeated every six slots for the next micro-batch it never collides
// with itself, and the distance between F and B, the *lifespan*, is the memory that a rank needs.
// Free slots take the W's that are due. The repetition leaves holes at both ends, where there are
// no neighbours; *squeezing* moves operations into them as long as no rank holds more than the most
// that some rank held before, and *compacting* runs the order with unit costs as early as it can.
// After that the W's are placed anew, since the holes have moved.

#include <fmt/format.h>

#include <array>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/schedule/generators/makers.hpp"

namespace heteroperf {
namespace {

constexpr RequestRules v_half{"v-half", 2}, v_min{"v-min", 2};
/// The largest p(m + p), which is the slots of all ranks; the tables hold six per micro-batch.
constexpr long long most_slot_rows = 1LL << 22;

/// The operations of a rank, in the order in which ties are broken. A W stands for the n-th
/// gradient, whatever its chunk, until the programs are written.
enum Type { f0, f1, b1, b0, w, types };
constexpr int period = 6;

/// The slots of the building block on a rank: F0, F1, B1, B0.
using Pattern = std::array<int, 4>;

/// The building block of v-half on rank r of p.
Pattern v_half_pattern(int p, int r) {
  const int d = p % 2 == 0 ? 3 : 0;
  return {2 * r, 3 * p - r - 2, 3 * p + d + 2 * r - 1, 6 * p + d - r - 2};
}

/// The building block of v-min on rank r of p.
Pattern v_min_pattern(int p, int r) {
  const int d = p % 3 == 0 ? 2 : 0;
  return {r, 2 * p - r - 1, 2 * p + d + r, 4 * p + d - r - 1};
}

/// The index-th operation of a type; type −1 is a free slot.
struct Operation {
  std::int32_t type = -1, index = -1;
  bool free() const { return type < 0; }
};

/// One rank's operations on a grid of slots of unit time.
struct RankSlots {
  std::array<std::vector<int>, types> slot;  // [type][index]
  std::vector<Operation> grid;               // [slot]

  /// The number of slots up to the last operation that is not a W.
  int end_without_w() const {
    int end = 0;
    for (int type = f0; type < w; ++type) end = std::max(end, slot[type].back() + 1);
    return end;
  }
};

/// Makes the grid of a rank anew from the slots of its operations.
void fill_grid(RankSlots& rank) {
  int end = 0;
  for (const auto& slots : rank.slot) {
    if (!slots.empty()) end = std::max(end, slots.back() + 1);
  }
  rank.grid.assign(end, {});
  for (int type = f0; type < types; ++type) {
    for (std::size_t i = 0; i < rank.slot[type].size(); ++i) {
      rank.grid[rank.slot[type][i]] = {type, static_cast<int>(i)};
    }
  }
}

/// Gives every gradient its W: the oldest one in each free slot, the remaining ones at the end.
void put_weights(RankSlots& rank) {
  const int end = rank.end_without_w();
  const std::size_t all = rank.slot[b1].size() + rank.slot[b0].size();
  rank.slot[w].clear();
  fill_grid(rank);
  std::size_t gradients = 0;
  for (int s = 0; rank.slot[w].size() < all; ++s) {
    const bool free = s >= end || rank.grid[s].free();
    if (!free) {
      gradients += rank.grid[s].type == b1 || rank.grid[s].type == b0;
    } else if (rank.slot[w].size() < gradients) {
      rank.slot[w].push_back(s);
    }
  }
  fill_grid(rank);
}

/// Visits the operations on the grids, ordered by (slot, rank).
template <class Visit>
void for_each_by_slot(const std::vector<std::vector<Operation>>& grids, Visit visit) {
  std::size_t end = 0;
  for (const auto& grid : grids) end = std::max(end, grid.size());
  for (std::size_t s = 0; s < end; ++s) {
    for (std::size_t r = 0; r < grids.size(); ++r) {
      if (s < grids[r].size() && !grids[r][s].free()) visit(static_cast<int>(s), r, grids[r][s]);
    }
  }
}

std::vector<std::vector<Operation>> grids_of(const std::vector<RankSlots>& ranks) {
  std::vector<std::vector<Operation>> grids;
  for (const RankSlots& rank : ranks) grids.push_back(rank.grid);
  return grids;
}

/// The slot after an operation's predecessors, which are its type on the neighbour stage, the
/// previous type of this micro-batch and the previous index of its type.
int first_slot_after_inputs(const std::vector<RankSlots>& ranks, std::size_t r, Operation o) {
  int after = -1;
  const bool down = o.type == f0 || o.type == b1;
  if (o.type != w && down && r > 0) after = ranks[r - 1].slot[o.type][o.index];
  if (o.type != w && !down && r + 1 < ranks.size()) after = ranks[r + 1].slot[o.type][o.index];
  if (o.type != w && o.type != f0) after = std::max(after, ranks[r].slot[o.type - 1][o.index]);
  if (o.index > 0) after = std::max(after, ranks[r].slot[o.type][o.index - 1]);
  return after + 1;
}

/// Runs every rank's order as early as inputs allow, each operation one slot long.
void compact(std::vector<RankSlots>& ranks) {
  std::vector<int> next(ranks.size(), 0);
  for_each_by_slot(grids_of(ranks), [&](int, std::size_t r, Operation o) {
    const int s = std::max(next[r], first_slot_after_inputs(ranks, r, o));
    ranks[r].slot[o.type][o.index] = s;
    next[r] = s + 1;
  });
  for (RankSlots& rank : ranks) fill_grid(rank);
}

/// The activations that a rank holds after each slot, where every W has a slot of its own.
class StatedWeights {
 public:
  explicit StatedWeights(const RankSlots& rank) : held_(rank.grid.size(), 0) {
    int held = 0;
    for (std::size_t s = 0; s < rank.grid.size(); ++s) held_[s] = held += change(rank.grid[s]);
  }
  int peak() const { return *std::max_element(held_.begin(), held_.end()); }
  /// Tries a move to an earlier slot; true where it keeps the limit, and then it is made.
  bool move(const std::vector<Operation>&, Operation o, int from, int to, int limit) {
    const int more = change(o);
    for (int s = to; s < from && more > 0; ++s) {
      if (held_[s] + more > limit) return false;
    }
    for (int s = to; s < from && more != 0; ++s) held_[s] += more;
    return true;
  }

 private:
  static int change(Operation o) {
    if (o.type == f0 || o.type == f1) return 1;
    return o.type == w ? -1 : 0;
  }
  std::vector<int> held_;  // [slot]
};

/// Counts the same where W has no slots of its own but takes every free one while a gradient is
/// pending. A move changes which slots are free, so that the states after it are walked again until
/// they agree with the old ones.
class ImpliedWeights {
 public:
  explicit ImpliedWeights(const RankSlots& rank) {
    State state;
    for (int s = 0; s < rank.end_without_w(); ++s) {
      state.pass(rank.grid[s]);
      states_.push_back(state);
    }
  }
  int peak() const {
    int most = 0;
    for (const State& state : states_) most = std::max(most, state.held);
    return most;
  }
  bool move(const std::vector<Operation>& grid, Operation o, int from, int to, int limit) {
    State state = to > 0 ? states_[to - 1] : State{};
    changed_.clear();
    for (int s = to; s < static_cast<int>(states_.size()); ++s) {
      state.pass(s == to ? o : s == from ? Operation{} : grid[s]);
      if (state.held > limit) return false;
      if (s >= from && state == states_[s]) break;
      changed_.push_back(state);
    }
    std::copy(changed_.begin(), changed_.end(), states_.begin() + to);
    return true;
  }

 private:
  struct State {
    int held = 0, pending = 0;
    void pass(Operation o) {
      if (o.type == f0 || o.type == f1) ++held;
      if (o.type == b1 || o.type == b0) ++pending;
      if (o.free() && pending > 0) {
        --held;
        --pending;
      }
    }
    friend bool operator==(const State&, const State&) = default;
  };
  std::vector<State> states_, changed_;  // the states after each slot
};

enum class Head { moves, fixed };
/// Moves each operation, by (slot, rank), to its rank's earliest free slot after its predecessors
/// that keeps the rank's peak within the largest peak that a rank had before. Operations from rank
/// 0's first B0 to rank 0's last F0 (none where that comes earlier) stay where they are, and where
/// the head is `fixed` those before too.
template <class Memory>
void squeeze(std::vector<RankSlots>& ranks, Head head) {
  const int first_b0 = ranks[0].slot[b0].front(), last_f0 = ranks[0].slot[f0].back();
  std::vector<Memory> memory;
  int limit = 0;
  for (const RankSlots& rank : ranks) limit = std::max(limit, memory.emplace_back(rank).peak());
  std::vector<std::vector<int>> gradients(ranks.size());  // their slots, ascending
  for_each_by_slot(grids_of(ranks), [&](int from, std::size_t r, Operation o) {
    RankSlots& rank = ranks[r];
    const bool stays =
        from < first_b0 ? head == Head::fixed : from < last_f0 || (from == last_f0 && r == 0);
    if (!stays) {
      int to = first_slot_after_inputs(ranks, r, o);
      // The n-th W comes after the n-th gradient.
      if (o.type == w) to = std::max(to, gradients[r][o.index] + 1);
      while (to < from &&
             (!rank.grid[to].free() || !memory[r].move(rank.grid, o, from, to, limit))) {
        ++to;
      }
      rank.grid[from] = {};
      rank.grid[to] = o;
      rank.slot[o.type][o.index] = to;
      from = to;
    }
    if (o.type != b1 && o.type != b0) return;
    gradients[r].insert(std::ranges::upper_bound(gradients[r], from), from);
  });
}

/// The rank's program. Free slots take a W, one of chunk 1 before one of chunk 0.
std::vector<Instruction> program_of(const RankSlots& rank, SegmentId first_stage,
                                    SegmentId second_stage) {
  const SegmentId stage[] = {first_stage, second_stage, second_stage, first_stage};
  const int micro_batches = static_cast<int>(rank.slot[f0].size());
  std::vector<Instruction> program;
  program.reserve(period * static_cast<std::size_t>(micro_batches));
  std::array<MicroBatchId, 2> due, done;  // chunk 1, chunk 0
  const auto weight = [&] {
    const int which = done[0] < due[0] ? 0 : 1;
    if (done[which] < due[which]) {
      program.push_back(compute(Op::weight_gradient, stage[b1 + which], done[which]++));
    }
  };
  for (int s = 0; s < rank.end_without_w(); ++s) {
    const Operation o = rank.grid[s];
    if (o.free()) {
      weight();
      continue;
    }
    const bool gradient = o.type == b1 || o.type == b0;
    if (gradient) ++due[o.type - b1];
    program.push_back(
        compute(gradient ? Op::input_gradient : Op::forward, stage[o.type], MicroBatchId(o.index)));
  }
  while (std::min(done[0], done[1]).value() < micro_batches) weight();
  return program;
}

/// Bounds the grids, which hold every slot of every rank.
void require_size(const RequestRules& rules, const RequestSizes& sizes) {
  const long long rows = sizes.ranks * (static_cast<long long>(sizes.ranks) + sizes.micro_batches);
  if (rows <= most_slot_rows) return;
  const long long least = static_cast<long long>(sizes.ranks) * sizes.ranks;
  throw UserError(fmt::format("{} for {} micro-batches on {} ranks", rules.name,
                              sizes.micro_batches, sizes.ranks),
                  fmt::format("its order is found on a grid of {} slots; at most {}", period * rows,
                              period * most_slot_rows),
                  least < most_slot_rows
                      ? fmt::format("Use at most {} micro-batches.",
                                    std::max(1LL, most_slot_rows / sizes.ranks - sizes.ranks))
                      : std::string("Use at most 2047 ranks."));
}

/// Repeats a building block of a V every six slots and squeezes the result under its own peak of
/// memory. Source: arXiv 2405.15362 §4 and appendix.
Schedule make_controllable(const ScheduleRequest& request, const RequestRules& rules,
                           Pattern (*pattern)(int p, int r)) {
  const RequestSizes sizes = check_request(request, rules);
  require_size(rules, sizes);
  const int p = sizes.ranks, m = sizes.micro_batches;
  PipelineGraph graph = chain_for(request, rules, sizes, ChainPlacement::zig_zag);
  std::vector<RankSlots> ranks(p);
  for (int r = 0; r < p; ++r) {
    const Pattern first = pattern(p, r);
    for (int type = f0; type < w; ++type) {
      for (int i = 0; i < m; ++i) ranks[r].slot[type].push_back(first[type] + period * i);
    }
    put_weights(ranks[r]);
  }
  squeeze<StatedWeights>(ranks, Head::moves);
  compact(ranks);
  for (RankSlots& rank : ranks) {
    rank.slot[w].clear();
    fill_grid(rank);
  }
  squeeze<ImpliedWeights>(ranks, Head::fixed);

  return compute_schedule(rules, 2, std::move(graph), [&](int r, auto& program) {
    program = program_of(ranks[r], SegmentId(r), SegmentId(2 * p - 1 - r));
  });
}

}  // namespace

Schedule make_v_half(const ScheduleRequest& request) {
  return make_controllable(request, v_half, v_half_pattern);
}

Schedule make_v_min(const ScheduleRequest& request) {
  return make_controllable(request, v_min, v_min_pattern);
}

}  // namespace heteroperf
