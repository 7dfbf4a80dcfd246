#pragma once

#include <cstdint>

#include "workloads/models/transformer.hpp"

namespace heteroperf {

enum class HeadKind { untied, tied };

/// A decoder-only language model. The defaults are the suite's own GPT: learned positions,
/// pre-LayerNorm, causal attention, GELU MLP of 4 · width, final LayerNorm, untied head without
/// bias.
struct GptShape {
  std::int64_t layers = 0, width = 0, heads = 0;
  std::int64_t kv_heads = 0;   ///< 0: as many as heads
  std::int64_t mlp_width = 0;  ///< 0: 4 · width
  std::int64_t vocabulary = 0;
  std::int64_t length = 0;     ///< tokens of one sample
  std::int64_t positions = 0;  ///< rows of a learned table; 0: `length`
  HeadKind head = HeadKind::untied;
  NormKind norm = NormKind::layer_norm;
  double norm_eps = 1e-5;
  MlpKind mlp = MlpKind::gelu_tanh;
  PositionKind position_kind = PositionKind::learned;
  double rotary_base = 10000.0;
  bool bias = true;  ///< of the linear layers inside the blocks
  double dropout = 0.0;
};

/// Throws UserError when the shape does not fit.
ModelGraph gpt(const GptShape& shape);

}  // namespace heteroperf
