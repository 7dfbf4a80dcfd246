// Attention on a GPU. LibTorch's fused kernels are used where they exist: flash attention for bf16,
// the memory-efficient one for fp32. Elsewhere (fp64, ALiBi, heads of other extents) the products
// are written out; an observer is told that these are one operation, so that all ways count alike.
//
// The forward pass appends what its way needs to `saved`, behind the packed input that the caller
// has put there, and the backward pass takes the same way again: way_for() depends on shapes,
// types and the presence of a bias. Keys and values that several query heads share are repeated for
// the kernels, and their gradients are summed over the heads that shared them.
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/product.hpp"

#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <array>
#include <cmath>
#include <limits>

namespace heteroperf {
namespace {

enum class Way { flash, efficient, written_out };

Way way_for(const AttentionParts& parts, const std::optional<at::Tensor>& bias) {
  const at::ScalarType type = parts.query.scalar_type();
  const std::int64_t extent = parts.query.size(3);
  if (bias || type == at::kDouble || extent % 8 != 0 || extent > 256) return Way::written_out;
  return type == at::kBFloat16 ? Way::flash : Way::efficient;
}

/// 1/√(extent of a head), as in the definition of scaled dot-product attention.
double scale_of(const AttentionParts& parts) {
  return 1.0 / std::sqrt(static_cast<double>(parts.query.size(3)));
}

/// Query heads per head of keys and values; 1 unless these are grouped.
std::int64_t sharers(const AttentionParts& parts) {
  return parts.query.size(1) / parts.key.size(1);
}

/// Each head of keys and values once per query head it serves.
AttentionParts spread(const AttentionParts& parts) {
  const std::int64_t times = sharers(parts);
  if (times == 1) return parts;
  return {parts.query, parts.key.repeat_interleave(times, 1),
          parts.value.repeat_interleave(times, 1)};
}
/// Sums the gradients of the repeated heads; the opposite of spread().
at::Tensor gather(const at::Tensor& gradient, std::int64_t times) {
  if (times == 1) return gradient;
  return gradient.reshape({gradient.size(0), -1, times, gradient.size(2), gradient.size(3)}).sum(2);
}

/// Softmax of the scaled scores, with the bias added and, where causal, later positions left out.
at::Tensor probabilities(const AttentionParts& parts, bool causal,
                         const std::optional<at::Tensor>& bias) {
  at::Tensor scores = at::matmul(parts.query, parts.key.transpose(2, 3)).mul_(scale_of(parts));
  if (bias) scores.add_(*bias);
  if (causal) {
    const std::int64_t length = scores.size(3);
    const at::Tensor later = at::ones({length, length}, scores.options().dtype(at::kBool)).triu_(1);
    scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
  }
  return at::_softmax(scores, -1, false);
}

}  // namespace

at::Tensor device_attention(const AttentionParts& parts, bool causal,
                            const std::optional<at::Tensor>& bias, Tensors& saved) {
  const AttentionParts all = spread(parts);
  switch (way_for(parts, bias)) {
    case Way::flash: {
      const auto got =
          at::_scaled_dot_product_flash_attention(all.query, all.key, all.value, 0.0, causal);
      saved.insert(saved.end(),
                   {std::get<0>(got), std::get<1>(got), std::get<6>(got), std::get<7>(got)});
      return std::get<0>(got);
    }
    case Way::efficient: {
      const auto got = at::_scaled_dot_product_efficient_attention(all.query, all.key, all.value,
                                                                   std::nullopt, true, 0.0, causal);
      saved.insert(saved.end(),
                   {std::get<0>(got), std::get<1>(got), std::get<2>(got), std::get<3>(got)});
      return std::get<0>(got);
    }
    default:
      break;
  }
  const CountedCall counted("heteroperf::attention", {all.query, all.key, all.value, causal});
  const at::Tensor p = probabilities(all, causal, bias);
  saved.push_back(p);
  return at::matmul(p, all.value);
}

AttentionParts device_attention_backward(const at::Tensor& gradient, const AttentionParts& parts,
                                         bool causal, const std::optional<at::Tensor>& bias,
                                         const Tensors& saved) {
  const AttentionParts all = spread(parts);
  AttentionParts result;
  switch (way_for(parts, bias)) {
    case Way::flash: {
      const std::int64_t length = all.query.size(2), others = all.key.size(2);
      std::tie(result.query, result.key, result.value) =
          at::_scaled_dot_product_flash_attention_backward(gradient, all.query, all.key, all.value,
                                                           saved[1], saved[2], {}, {}, length,
                                                           others, 0.0, causal, saved[3], saved[4]);
      break;
    }
    case Way::efficient: {
      at::Tensor none;
      std::tie(result.query, result.key, result.value, none) =
          at::_scaled_dot_product_efficient_attention_backward(
              gradient, all.query, all.key, all.value, {}, saved[1], saved[2], saved[3], saved[4],
              0.0, {true, true, true, false}, causal);
      break;
    }
    default:
      const CountedCall counted("heteroperf::attention_backward",
                                {gradient, all.query, all.key, all.value, causal});
      const at::Tensor& p = saved[1];
      // The gradients of out = P · V and of P = softmax(scale · Q · Kᵀ).
      const at::Tensor dp = at::matmul(gradient, all.value.transpose(2, 3));
      const at::Tensor ds =
          at::_softmax_backward_data(dp, p, -1, p.scalar_type()).mul_(scale_of(parts));
      result = {at::matmul(ds, all.key), at::matmul(ds.transpose(2, 3), all.query),
                at::matmul(p.transpose(2, 3), gradient)};
  }
  const std::int64_t times = sharers(parts);
  return {result.query, gather(result.key, times), gather(result.value, times)};
}

}  // namespace heteroperf
