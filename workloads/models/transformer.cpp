#include "workloads/models/transformer.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

void check(const std::string& prefix, const TransformerBlock& block) {
  if (block.heads >= 1 && block.kv_heads >= 1 && block.width % block.heads == 0) return;
  throw UserError(fmt::format("block '{}' has width {}, {} heads and {} kv_heads", prefix,
                              block.width, block.heads, block.kv_heads),
                  "the heads must divide the width");
}

NodeId linear(ModelGraph& graph, const std::string& node_name, NodeId x, std::int64_t features,
              const TransformerBlock& block) {
  return graph.add(node_name, Linear{features, block.bias, {}}, {x});
}

NodeId attention(ModelGraph& graph, const std::string& prefix, NodeId x,
                 const TransformerBlock& block) {
  const std::int64_t head_dim = block.width / block.heads;
  x = linear(graph, prefix + ".qkv", x, (block.heads + 2 * block.kv_heads) * head_dim, block);
  if (block.positions == PositionKind::rotary) {
    x = graph.add(prefix + ".rotary",
                  Rotary{block.heads, block.kv_heads, head_dim, block.rotary_base}, {x});
  }
  const bool alibi = block.positions == PositionKind::alibi;
  x = graph.add(prefix + ".core",
                Attention{block.heads, block.kv_heads, head_dim, block.causal, alibi}, {x});
  x = linear(graph, prefix + ".proj", x, block.width, block);
  return add_dropout(graph, prefix + ".dropout", x, block.dropout);
}

NodeId activated(ModelGraph& graph, const std::string& prefix, NodeId x,
                 const TransformerBlock& block) {
  if (block.mlp == MlpKind::swiglu) {
    const NodeId gate = linear(graph, prefix + ".gate", x, block.mlp_width, block);
    const NodeId up = linear(graph, prefix + ".up", x, block.mlp_width, block);
    const NodeId silu = graph.add(prefix + ".silu", Silu{}, {gate});
    return graph.add(prefix + ".multiply", Multiply{}, {silu, up});
  }
  const GeluForm form = block.mlp == MlpKind::gelu_tanh ? GeluForm::tanh : GeluForm::erf;
  x = linear(graph, prefix + ".up", x, block.mlp_width, block);
  return graph.add(prefix + ".gelu", Gelu{form}, {x});
}

NodeId mlp(ModelGraph& graph, const std::string& prefix, NodeId x, const TransformerBlock& block) {
  x = activated(graph, prefix, x, block);
  x = linear(graph, prefix + ".down", x, block.width, block);
  return add_dropout(graph, prefix + ".dropout", x, block.dropout);
}

/// One sub-layer with its norm and residual sum.
template <class SubLayer>
NodeId residual(ModelGraph& graph, const std::string& prefix, const std::string& part, NodeId x,
                const TransformerBlock& block, SubLayer sub_layer) {
  const std::string norm = fmt::format("{}.{}_norm", prefix, part);
  const std::string sum = fmt::format("{}.{}_add", prefix, part);
  const std::string inner = fmt::format("{}.{}", prefix, part);
  if (block.norm_place == NormPlace::after) {
    const NodeId added = graph.add(sum, Add{}, {x, sub_layer(graph, inner, x, block)});
    return add_norm(graph, norm, added, block.norm, block.norm_eps);
  }
  const NodeId normed = add_norm(graph, norm, x, block.norm, block.norm_eps);
  return graph.add(sum, Add{}, {x, sub_layer(graph, inner, normed, block)});
}

}  // namespace

NodeId add_norm(ModelGraph& graph, const std::string& node_name, NodeId x, NormKind kind,
                double eps) {
  if (kind == NormKind::rms_norm) return graph.add(node_name, RmsNorm{eps}, {x});
  return graph.add(node_name, LayerNorm{eps, kind == NormKind::layer_norm}, {x});
}

NodeId add_dropout(ModelGraph& graph, const std::string& node_name, NodeId x, double p) {
  return p == 0.0 ? x : graph.add(node_name, Dropout{p}, {x});
}

NodeId add_transformer_block(ModelGraph& graph, const std::string& prefix, NodeId x,
                             const TransformerBlock& block) {
  check(prefix, block);
  x = residual(graph, prefix, "attn", x, block, attention);
  return residual(graph, prefix, "mlp", x, block, mlp);
}

}  // namespace heteroperf
