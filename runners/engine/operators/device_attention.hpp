#pragma once

#include <optional>

#include "runners/engine/operators/operator.hpp"

namespace heteroperf {

/// {B, heads, T, head_dim}; keys and values may have fewer heads, each of which serves neighbours.
struct AttentionParts {
  at::Tensor query, key, value;
};

/// softmax(scale · Q Kᵀ + bias) V on a CUDA device, by what LibTorch has for it: flash attention
/// (bf16) or the memory-efficient one (fp32), or written out (fp64, with a bias, or where a head's
/// extent is no multiple of 8). Appends to `saved` what the backward pass takes from its second
/// element on. The observer counts either way as one attention.
at::Tensor device_attention(const AttentionParts& parts, bool causal,
                            const std::optional<at::Tensor>& bias, Tensors& saved);
AttentionParts device_attention_backward(const at::Tensor& gradient, const AttentionParts& parts,
                                         bool causal, const std::optional<at::Tensor>& bias,
                                         const Tensors& saved);

}  // namespace heteroperf
