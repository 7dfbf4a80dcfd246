// Attention of context-parallel ranks over paced links: keys that go round in a ring, as the engine
// passes them, against keys that are gathered first, in one run, round by round.
//   context_ring_bench [--ranks 2] [--tokens 32768] [--rounds 7]
// Ranks are threads of one core each. The links' rate is chosen so that a gather takes the given
// share of the attention's own time: a group of real chips has a share of its own, worked out from
// its rate and its links, and any one that is tried here is some group's.
#include <ATen/Parallel.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "metrics/statistics.hpp"
#include "runners/comm/paced/paced_communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"
#include "tests/unit/runners/engine/operators/operator_check.hpp"
#include "tests/unit/runners/plan/plan_cases.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t width = 64;  // of the one head

struct Options {
  int ranks = 2, rounds = 7;
  std::int64_t tokens = 32768;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
    const int value = std::atoi(argv[i + 1]);
    if (is("--ranks")) options.ranks = value;
    if (is("--rounds")) options.rounds = value;
    if (is("--tokens")) options.tokens = value;
  }
  return options;
}

/// The gradient of the packed input after a forward and a backward pass.
at::Tensor by_ring(const Attention& attention, Communicator& group, const at::Tensor& packed,
                   const at::Tensor& dy) {
  const OperatorPtr op = make_context_attention(attention, group);
  Tensors saved;
  CheckedSink sink({NodeId(0)}, {true}, Offer::nothing);
  op->forward({packed}, {}, saved, {});
  op->input_gradient(dy, {}, saved, {}, sink);
  return sink.gradient(0);
}

/// The same with all keys gathered before both passes. With `exchanges` unset the messages are left
/// out, which gives the attention's own time and no result.
class ByGather {
 public:
  ByGather(const Attention& attention, Communicator& group, bool exchanges)
      : a_(attention), group_(group), exchanges_(exchanges) {}

  at::Tensor run(const at::Tensor& packed, const at::Tensor& dy) const {
    const at::Tensor own_keys = packed.narrow(2, width, 2 * width).contiguous();
    at::Tensor keys = whole(own_keys);
    std::vector<Piece> pieces;
    std::int64_t row = 0;
    for (const SequencePart::Chunk& chunk : a_.part.chunks(packed.size(1))) {
      const at::Tensor query = heads(packed.narrow(1, row, chunk.count).narrow(2, 0, width));
      const auto [output, log_sum] = forward(query, keys, chunk.first, chunk.count, true);
      Piece& piece = pieces.emplace_back(Piece{row, chunk, query, output, log_sum});
      row += chunk.count;
      if (chunk.first == 0) continue;
      const auto [before, log_before] = forward(piece.query, keys, 0, chunk.first, false);
      const at::Tensor both = at::logaddexp(log_sum, log_before);
      piece.output = output.mul(log_sum.sub(both).exp().unsqueeze(-1))
                         .add(before.mul(log_before.sub(both).exp().unsqueeze(-1)));
      piece.log_sum = both;
    }
    keys = whole(own_keys);
    const at::Tensor key_gradient = at::zeros(keys.sizes(), keys.options());
    Tensors query_gradients;
    for (const Piece& piece : pieces) {
      const at::Tensor g = heads(dy.narrow(1, piece.row, piece.own.count));
      at::Tensor gradient =
          backward(g, piece, keys, key_gradient, piece.own.first, piece.own.count, true);
      if (piece.own.first > 0) {
        gradient.add_(backward(g, piece, keys, key_gradient, 0, piece.own.first, false));
      }
      query_gradients.push_back(gradient.squeeze(1));
    }
    return at::cat({at::cat(query_gradients, 1), sum(key_gradient)}, 2);
  }

 private:
  struct Piece {
    std::int64_t row = 0;
    SequencePart::Chunk own;
    at::Tensor query, output, log_sum;
  };

  static at::Tensor heads(const at::Tensor& rows) { return rows.unsqueeze(1); }
  at::Tensor whole(const at::Tensor& own) const {
    return exchanges_ ? whole_sequences(group_, own, a_.part.order)
                      : at::cat(Tensors(static_cast<std::size_t>(a_.part.parts), own), 1);
  }
  at::Tensor sum(const at::Tensor& key_gradient) const {
    const std::int64_t own = key_gradient.size(1) / a_.part.parts;
    if (!exchanges_) return key_gradient.narrow(1, 0, own);
    Tensors parts;
    for (std::int32_t i = 0; i < a_.part.parts; ++i) {
      parts.push_back(positions_of_part(key_gradient, 1, {i, a_.part.parts}, own));
    }
    const at::Tensor by_rank = at::cat(parts, 0), result = at::zeros_like(parts.front());
    group_.reduce_scatter(buffer_of(by_rank), buffer_of(result));
    return result;
  }
  at::Tensor half(const at::Tensor& keys, int which) const {
    return keys.narrow(2, which * width, width);
  }
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& query, const at::Tensor& keys,
                                            std::int64_t first, std::int64_t count,
                                            bool causal) const {
    const at::Tensor block = keys.narrow(1, first, count);
    const auto [output, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        query, heads(half(block, 0)), heads(half(block, 1)), 0.0, causal, std::nullopt);
    return {output, log_sum};
  }
  at::Tensor backward(const at::Tensor& g, const Piece& piece, const at::Tensor& keys,
                      const at::Tensor& key_gradient, std::int64_t first, std::int64_t count,
                      bool causal) const {
    const at::Tensor block = keys.narrow(1, first, count);
    const auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        g, piece.query, heads(half(block, 0)), heads(half(block, 1)), piece.output, piece.log_sum,
        0.0, causal, std::nullopt);
    const at::Tensor sums = key_gradient.narrow(1, first, count);
    half(sums, 0).add_(key.squeeze(1));
    half(sums, 1).add_(value.squeeze(1));
    return query;
  }

  Attention a_;
  Communicator& group_;
  bool exchanges_;
};

/// Seconds of the slowest rank.
double seconds_of(Communicator& world, const std::function<void()>& call) {
  world.barrier();
  const auto start = std::chrono::steady_clock::now();
  call();
  double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  world.all_reduce(std::span(&took, 1), Reduction::max);
  return took;
}

void measure(World& world, const Options& options) {
  const c10::InferenceMode no_tape;
  at::set_num_threads(1);
  Communicator& all = *world.communicator;
  Attention attention{1, 1, width};
  attention.part = {all.rank().value(), options.ranks, SequenceOrder::zig_zag};
  const std::int64_t own = options.tokens / options.ranks;
  const at::Tensor packed = at::randn({1, own, 3 * width}), dy = at::randn({1, own, width});

  const ByGather without(attention, all, false);
  std::vector<double> own_s;
  for (int round = 0; round < 3; ++round) {
    own_s.push_back(seconds_of(all, [&] { without.run(packed, dy); }));
  }
  // Keys and values go twice, their gradients once, all of one size here.
  const double bytes = 3.0 * static_cast<double>((options.ranks - 1) * own * 2 * width) * 4;
  for (const double share : {0.0, 0.03, 0.1, 0.3, 0.7, 1.0, 2.0}) {
    const double rate = share > 0 ? bytes / (share * median(own_s)) : 1e15;
    const auto paced = make_paced_communicator(all.split(0, all.rank().value()),
                                               flat_cluster(options.ranks, 1, 1e-5, rate));
    Communicator& group = share > 0 ? *paced : all;
    const ByGather gather(attention, group, true);
    const at::Tensor expected = gather.run(packed, dy);
    const at::Tensor parted = by_ring(attention, group, packed, dy).sub(expected);
    const double difference = parted.abs().max().item().toDouble();
    std::vector<double> ratios, ring_s;
    for (int round = 0; round < options.rounds; ++round) {
      ring_s.push_back(seconds_of(all, [&] { by_ring(attention, group, packed, dy); }));
      ratios.push_back(seconds_of(all, [&] { gather.run(packed, dy); }) / ring_s.back());
    }
    if (all.rank() != RankId(0)) continue;
    const Interval interval = bootstrap_interval(ratios, median);
    fmt::print(
        "messages / attention {:4.2f}: ring {:7.3f} s, gather / ring {:.3f} [{:.3f}, "
        "{:.3f}], greatest difference {:.1e}\n",
        share, median(ring_s), median(ratios), interval.low, interval.high, difference);
  }
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  const heteroperf::Options options = heteroperf::parse(argc, argv);
  heteroperf::run_on_threads(
      options.ranks, {}, [&](heteroperf::World& world) { heteroperf::measure(world, options); });
}
