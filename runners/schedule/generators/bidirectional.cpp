// Schedules whose micro-batches enter the pipeline from both ends. Each rank then holds a stage
// near the front of one direction and a stage near the end of the other, so while one direction
// fills or drains, the other one has work: the bubble halves, at the price of two copies of the
// weights (chimera, dualpipe) or of a model folded to a V (dualpipev).

#include <fmt/format.h>

#include <array>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/schedule/generators/makers.hpp"

namespace heteroperf {
namespace {

constexpr RequestRules chimera{"chimera"};
constexpr RequestRules dualpipe{"dualpipe"};
constexpr RequestRules dualpipev{"dualpipev", 2};

bool is_even(int number) { return number % 2 == 0; }

/// Throws where two copies in opposite directions are not possible on the ranks.
void require_even_ranks(const RequestRules& rules, int ranks) {
  if (is_even(ranks)) return;
  throw UserError(fmt::format("{} on {} ranks", rules.name, ranks),
                  "its two directions need an even number of ranks",
                  fmt::format("Use {} ranks.", nearest_numbers(ranks, most_ranks, is_even)));
}

/// Throws where `valid` refuses the micro-batches.
template <class Valid>
void require_micro_batches(const RequestRules& rules, const RequestSizes& sizes, const char* why,
                           Valid valid) {
  if (valid(sizes.micro_batches)) return;
  throw UserError(fmt::format("{} for {} micro-batches on {} ranks", rules.name,
                              sizes.micro_batches, sizes.ranks),
                  why,
                  fmt::format("Use {} micro-batches.",
                              nearest_numbers(sizes.micro_batches, most_tasks, valid)));
}

/// A rank's part of one of the two directions.
struct Direction {
  SegmentId segment;
  MicroBatchId first_micro_batch;
};

/// The directions down and up on a rank, as bidirectional_graph() numbers their segments.
std::array<Direction, 2> directions(const RequestSizes& sizes, int rank) {
  return {Direction{SegmentId(rank), 0},
          Direction{SegmentId(2 * sizes.ranks - 1 - rank), MicroBatchId(sizes.micro_batches / 2)}};
}

/// Writes one rank's program of DualPipe. Directions are 0 and 1; each counts its own
/// micro-batches.
class DualProgram {
 public:
  DualProgram(const std::array<Direction, 2>& directions, std::vector<Instruction>& program)
      : directions_(directions), program_(program) {}

  void forward(int d) { emit(Op::forward, d, forwards_[d]++); }
  void backward(int d) { emit(Op::backward, d, gradients_[d]++); }
  void input_gradient(int d) { queue_.push_back(emit(Op::input_gradient, d, gradients_[d]++)); }
  void weight_gradient() {
    const Instruction& oldest = queue_[next_weight_++];
    program_.push_back(compute(Op::weight_gradient, oldest.segment, oldest.micro_batch));
  }
  /// Writes F of direction d with BW of the opposite direction.
  void pair(int d, bool fused) {
    forward(d);
    program_.back().fused_with_next = fused;
    backward(1 - d);
  }

 private:
  Instruction emit(Op op, int d, int index) {
    program_.push_back(
        compute(op, directions_[d].segment, directions_[d].first_micro_batch + index));
    return program_.back();
  }

  std::array<Direction, 2> directions_;
  std::vector<Instruction>& program_;
  std::vector<Instruction> queue_;  // input gradients in order; the W of each is due
  std::size_t next_weight_ = 0;
  int forwards_[2] = {0, 0}, gradients_[2] = {0, 0};
};

/// Writes the eight phases of a rank that stands `q` ranks from its direction 0's first, of `half`
/// ranks until the two directions meet, for n micro-batches per direction.
void fill_dualpipe(int half, int q, int n, DualProgram& program) {
  const int ahead = half - q - 1;  // ranks between this one and the meeting point
  for (int i = 0; i < 2 * ahead; ++i) program.forward(0);
  for (int i = 0; i < q + 1; ++i) {
    program.forward(0);
    program.forward(1);
  }
  for (int i = 0; i < ahead; ++i) {
    program.input_gradient(1);
    program.weight_gradient();
    program.forward(1);
  }
  for (int i = 0; i < n - 2 * half + q + 1; ++i) {
    // At the meeting point the first gradient is that of the forward just done.
    program.pair(0, i > 0 || ahead > 0);
    program.pair(1, true);
  }
  for (int i = 0; i < ahead; ++i) {
    program.backward(1);
    program.pair(1, true);
  }
  const int turn = (q + 1) / 2 * 2 + (is_even(q) ? 1 : 0);  // from this gradient on W is put off
  for (int i = 0; i < 2 * (q + 1); ++i) {
    const int d = is_even(i) ? 1 : 0;
    i < turn ? program.backward(d) : program.input_gradient(d);
  }
  for (int i = 0; i < ahead; ++i) {
    program.weight_gradient();
    program.input_gradient(0);
  }
  for (int i = 0; i < q + 1; ++i) program.weight_gradient();
}

}  // namespace

/// Runs units of D = p micro-batches, half of them down and half up, merged by *slots* of one F or
/// one BW: the k-th of unit u has its F on stage s in slot 2Du+2k+s, its BW in slot 2Du+2k+2D−1−s.
/// No two fall into one slot of a rank. Source: arXiv 2107.06925 §3.1.
Schedule make_chimera(const ScheduleRequest& request) {
  const RequestSizes sizes = check_request(request, chimera);
  const int p = sizes.ranks, m = sizes.micro_batches;
  require_even_ranks(chimera, p);
  require_micro_batches(chimera, sizes, "it runs in units of as many micro-batches as ranks",
                        [p](int number) { return number % p == 0; });
  PipelineGraph graph = bidirectional_for(request, chimera, sizes);
  return compute_schedule(chimera, 1, std::move(graph), [&](int r, auto& program) {
    program.assign(2 * static_cast<std::size_t>(m) + p, {});
    const std::array<Direction, 2> both = directions(sizes, r);
    for (const MicroBatchId i : first_ids<MicroBatchId>(m)) {
      const bool up = i.value() >= m / 2;
      const auto [segment, first] = both[up];
      const int index = i - first, stage = up ? p - 1 - r : r;
      const int unit = index / (p / 2), k = index % (p / 2), origin = 2 * p * unit + 2 * k;
      program[origin + stage] = compute(Op::forward, segment, i);
      program[origin + 2 * p - 1 - stage] = compute(Op::backward, segment, i);
    }
    std::erase(program, Instruction{});
  });
}

/// Feeds each rank from its nearer end (direction 0); forwards of one direction run fused with
/// gradients of the other. Source: deepseek-ai/DualPipe; arXiv 2412.19437 §3.2.1.
Schedule make_dualpipe(const ScheduleRequest& request) {
  const RequestSizes sizes = check_request(request, dualpipe);
  const int p = sizes.ranks;
  require_even_ranks(dualpipe, p);
  require_micro_batches(dualpipe, sizes,
                        "it needs an even number of at least twice as many as ranks",
                        [p](int number) { return is_even(number) && number >= 2 * p; });
  PipelineGraph graph = bidirectional_for(request, dualpipe, sizes);
  return compute_schedule(dualpipe, 1, std::move(graph), [&](int r, auto& program) {
    std::array<Direction, 2> both = directions(sizes, r);
    if (r >= p / 2) std::swap(both[0], both[1]);
    DualProgram dual(both, program);
    fill_dualpipe(p / 2, std::min(r, p - 1 - r), sizes.micro_batches / 2, dual);
  });
}

/// Runs half of DualPipe: one model in a V, its stages r and 2p−1−r as directions 0 and 1 of rank
/// r. Source: deepseek-ai/DualPipe, dualpipev.py.
Schedule make_dualpipev(const ScheduleRequest& request) {
  const RequestSizes sizes = check_request(request, dualpipev);
  const int p = sizes.ranks;
  require_micro_batches(dualpipev, sizes, "it needs at least twice as many as ranks",
                        [p](int number) { return number >= 2 * p; });
  const ChainPlacement placement = ChainPlacement::zig_zag;
  return chain_schedule(request, dualpipev, sizes, placement, [&](int r, auto& program) {
    DualProgram dual({Direction{SegmentId(r), 0}, Direction{SegmentId(2 * p - 1 - r), 0}}, program);
    fill_dualpipe(p, r, sizes.micro_batches, dual);
  });
}

}  // namespace heteroperf
