#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "metrics/base/random.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"
#include "tests/unit/runners/engine/operators/operator_check.hpp"

namespace heteroperf {
namespace {

at::Tensor drawn(at::IntArrayRef sizes, RandomStream& random) {
  at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(at::kDouble));
  auto* values = tensor.data_ptr<double>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) values[i] = 2 * random.unit() - 1;
  return tensor;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.sub(b).abs().max().div(b.abs().max())).item().toDouble();
}

// What is written out for a device runs on the host too: float64 takes no other way.
void compare(std::int64_t heads, std::int64_t kv_heads, bool causal, bool with_bias) {
  RandomStream random(static_cast<std::uint64_t>(heads * 8 + kv_heads));
  constexpr std::int64_t batch = 2, length = 7, extent = 6;
  const AttentionParts parts{drawn({batch, heads, length, extent}, random),
                             drawn({batch, kv_heads, length, extent}, random),
                             drawn({batch, kv_heads, length, extent}, random)};
  const at::Tensor gradient = drawn({batch, heads, length, extent}, random);
  std::optional<at::Tensor> bias;
  if (with_bias) bias = drawn({1, heads, length, length}, random);
  Tensors saved(1);
  const at::Tensor out = device_attention(parts, causal, bias, saved);
  const AttentionParts got = device_attention_backward(gradient, parts, causal, bias, saved);

  const auto [want, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
      parts.query, parts.key, parts.value, 0.0, causal, bias);
  const auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, parts.query, parts.key, parts.value, want, log_sum, 0.0, causal, bias);
  EXPECT_LE(distance(out, want), 1e-13);
  EXPECT_LE(distance(got.query, query), 1e-13);
  EXPECT_LE(distance(got.key, key), 1e-13);
  EXPECT_LE(distance(got.value, value), 1e-13);
}

TEST(DeviceAttention, WrittenOutIsTheCpus) {
  for (const bool causal : {false, true}) {
    for (const bool with_bias : {false, true}) {
      compare(3, 3, causal, with_bias);
      compare(4, 2, causal, with_bias);
      compare(4, 1, causal, with_bias);
    }
  }
}

/// Attention of ranks that have parts of two sequences, against whole ones; the blocks are large
/// enough for memory of theirs to be given away and taken again.
void compare_parts(int ranks, bool causal, SequenceOrder order) {
  constexpr std::int64_t length = 480, extent = 16, heads = 4, kv_heads = 2;
  RandomStream random(7);
  const at::Tensor packed = drawn({2, length, (heads + 2 * kv_heads) * extent}, random);
  const at::Tensor dy = drawn({2, length, heads * extent}, random);
  const auto as_heads = [](const at::Tensor& rows, std::int64_t first, std::int64_t count) {
    return rows.narrow(2, first * extent, count * extent)
        .unflatten(2, {count, extent})
        .transpose(1, 2);
  };
  const auto as_rows = [](const at::Tensor& by_head) { return by_head.transpose(1, 2).flatten(2); };
  const AttentionParts parts{as_heads(packed, 0, heads), as_heads(packed, heads, kv_heads),
                             as_heads(packed, heads + kv_heads, kv_heads)};
  Tensors saved(1);
  const at::Tensor want = as_rows(device_attention(parts, causal, {}, saved));
  const AttentionParts of_parts =
      device_attention_backward(as_heads(dy, 0, heads), parts, causal, {}, saved);
  const at::Tensor gradient =
      at::cat({as_rows(of_parts.query), as_rows(of_parts.key), as_rows(of_parts.value)}, 2);
  run_on_threads(ranks, {}, [&](World& world) {
    const c10::InferenceMode no_tape;
    const SequencePart part{world.communicator->rank().value(), ranks, order};
    const auto own = [&](const at::Tensor& whole) {
      return positions_of_part(whole, 1, part, length / ranks);
    };
    Attention attention{heads, kv_heads, extent, causal};
    attention.part = part;
    const OperatorPtr op = make_context_attention(attention, *world.communicator);
    for (int pass = 0; pass < 3; ++pass) {
      Tensors kept;
      CheckedSink sink({NodeId(0)}, {true}, Offer::nothing);
      EXPECT_LE(distance(op->forward({own(packed)}, {}, kept, {}), own(want)), 1e-13);
      op->input_gradient(own(dy), {}, kept, {}, sink);
      EXPECT_LE(distance(sink.gradient(0), own(gradient)), 1e-13);
    }
  });
}

TEST(ContextAttention, PartsAreThoseOfWholeSequences) {
  for (const int ranks : {2, 3, 4}) {
    compare_parts(ranks, true, SequenceOrder::zig_zag);
    compare_parts(ranks, false, SequenceOrder::zig_zag);
    compare_parts(ranks, false, SequenceOrder::blocks);
  }
}

}  // namespace
}  // namespace heteroperf
