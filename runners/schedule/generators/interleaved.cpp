// Schedules that cut a rank's work into smaller pieces than a micro-batch of its whole share: into
// chunks, which are stages that lie round and round the ranks (interleaved-1f1b, looped-bfs), or
// into parts of the sequence (seq1f1b). Smaller pieces reach the last rank sooner, so the bubble
// shrinks by their number, while the messages grow more.

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/schedule/generators/makers.hpp"

namespace heteroperf {
namespace {

constexpr RequestRules interleaved{"interleaved-1f1b", 2, ChunkRule::free};
constexpr RequestRules looped_bfs{"looped-bfs", 2, ChunkRule::free};
constexpr RequestRules seq1f1b{"seq1f1b", 1, ChunkRule::fixed, PartRule::any};

/// A round is a run of micro-batches that passes all chunks before the next one starts.
int rounds(int ranks, int micro_batches) { return std::max(1, micro_batches / ranks); }

/// The number of micro-batches of a round: they pass one chunk before the next chunk takes over.
int round_size(const RequestSizes& sizes) {
  const auto divides = [&](int m) { return m % rounds(sizes.ranks, m) == 0; };
  if (!divides(sizes.micro_batches)) {
    throw UserError(fmt::format("interleaved-1f1b for {} micro-batches on {} ranks",
                                sizes.micro_batches, sizes.ranks),
                    fmt::format("{} rounds of equal size are not possible",
                                rounds(sizes.ranks, sizes.micro_batches)),
                    fmt::format("Use {} micro-batches.",
                                nearest_numbers(sizes.micro_batches, most_tasks, divides)));
  }
  return sizes.micro_batches / rounds(sizes.ranks, sizes.micro_batches);
}

}  // namespace

/// Runs rounds of g = m / max(1, ⌊m/p⌋) micro-batches. Each passes the rank's chunks in ascending
/// order forwards, in descending order backwards; the warm-up is 2(p−r−1) + (v−1)g chunk-forwards.
/// Source: arXiv 2104.04473 §2.2; g as in PyTorch's ScheduleInterleaved1F1B.
Schedule make_interleaved_1f1b(const ScheduleRequest& request) {
  const RequestSizes sizes = check_request(request, interleaved);
  const int p = sizes.ranks, m = sizes.micro_batches, v = sizes.chunks, g = round_size(sizes);
  return chain_schedule(
      request, interleaved, sizes, ChainPlacement::looped, [=](int r, auto& program) {
        program.reserve(2 * static_cast<std::size_t>(m) * v);
        const auto emit = [&](Op op, int chunk, int k) {
          const MicroBatchId micro_batch(k / (g * v) * g + k % g);
          program.push_back(compute(op, SegmentId(chunk * p + r), micro_batch));
        };
        const auto turn = [&](int k) { return k / g % v; };
        one_forward_one_backward(
            m * v, 2 * (p - r - 1) + (v - 1) * g, [&](int k) { emit(Op::forward, turn(k), k); },
            [&](int k) { emit(Op::backward, v - 1 - turn(k), k); });
      });
}

/// Does all forwards chunk by chunk; then all gradients, chunks and, within them, micro-batches in
/// reverse order. Source: arXiv 2211.05953 §3; the reverse order as in PyTorch's ScheduleLoopedBFS.
Schedule make_looped_bfs(const ScheduleRequest& request) {
  const RequestSizes sizes = check_request(request, looped_bfs);
  const int p = sizes.ranks, m = sizes.micro_batches, v = sizes.chunks;
  return chain_schedule(
      request, looped_bfs, sizes, ChainPlacement::looped, [=](int r, auto& program) {
        program.reserve(2 * static_cast<std::size_t>(m) * v);
        const auto emit = [&](Op op, int k) {
          program.push_back(compute(op, SegmentId(k / m * p + r), MicroBatchId(k % m)));
        };
        one_forward_one_backward(
            m * v, m * v, [&](int k) { emit(Op::forward, k); },
            [&](int k) { emit(Op::backward, m * v - 1 - k); });
      });
}

/// Runs 1F1B over the K parts of every micro-batch: the warm-up is p−r−2+K parts, which ascend
/// forwards and descend backwards. Source: arXiv 2406.03488.
Schedule make_seq1f1b(const ScheduleRequest& request) {
  const RequestSizes sizes = check_request(request, seq1f1b);
  const int p = sizes.ranks, m = sizes.micro_batches, parts = sizes.parts;
  return chain_schedule(request, seq1f1b, sizes, ChainPlacement::looped, [=](int r, auto& program) {
    program.reserve(2 * static_cast<std::size_t>(m) * parts);
    const auto emit = [&](Op op, int k, int part) {
      program.push_back(compute(op, SegmentId(r), MicroBatchId(k / parts), part));
    };
    one_forward_one_backward(
        m * parts, p - r - 2 + parts, [&](int k) { emit(Op::forward, k, k % parts); },
        [&](int k) { emit(Op::backward, k, parts - 1 - k % parts); });
  });
}

}  // namespace heteroperf
