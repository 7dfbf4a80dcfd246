#pragma once

#include <cstdint>
#include <string>

#include "workloads/model_graph.hpp"

namespace heteroperf {

enum class NormKind { layer_norm, layer_norm_no_bias, rms_norm };
enum class MlpKind { gelu_tanh, gelu_erf, swiglu };
/// What attention knows about positions; `learned` is added to the embedding, outside the block.
enum class PositionKind { learned, rotary, alibi };
/// Norm before each sub-layer (GPT-2 and later), or after its residual sum (BERT).
enum class NormPlace { before, after };

/// One block of a transformer: attention and MLP, each with a residual connection.
struct TransformerBlock {
  std::int64_t width = 0;
  std::int64_t heads = 0, kv_heads = 0;
  std::int64_t mlp_width = 0;
  NormKind norm = NormKind::layer_norm;
  double norm_eps = 1e-5;
  NormPlace norm_place = NormPlace::before;
  MlpKind mlp = MlpKind::gelu_tanh;
  PositionKind positions = PositionKind::learned;
  double rotary_base = 10000.0;
  bool causal = true;
  bool bias = true;  ///< of the linear layers
  double dropout = 0.0;
};

/// Adds the block after `x` ({T, width}); its nodes are named `prefix`.attn.qkv and so on. Returns
/// the block's output. Throws UserError when `heads` does not divide `width`.
NodeId add_transformer_block(ModelGraph& graph, const std::string& prefix, NodeId x,
                             const TransformerBlock& block);

NodeId add_norm(ModelGraph& graph, const std::string& node_name, NodeId x, NormKind kind,
                double eps);
/// `x` itself when p is 0.
NodeId add_dropout(ModelGraph& graph, const std::string& node_name, NodeId x, double p);

}  // namespace heteroperf
