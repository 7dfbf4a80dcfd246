#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "metrics/base/random.hpp"
#include "runners/engine/operators/operator_factories.hpp"

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

}  // namespace
}  // namespace heteroperf
