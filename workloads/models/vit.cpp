#include "workloads/models/vit.hpp"

#include <fmt/format.h>

namespace heteroperf {
namespace {

constexpr double vit_norm_eps = 1e-6;

NodeId add_patches(ModelGraph& graph, const VitShape& shape) {
  Conv2d patches;
  patches.out_channels = shape.width;
  patches.kernel = {shape.patch, shape.patch};
  patches.stride = {shape.patch, shape.patch};
  patches.bias = true;
  NodeId x = graph.add("input", shape.input, {});
  x = graph.add("patches", patches, {x});
  x = graph.add("sequence", ToSequence{}, {x});
  x = graph.add("class_token", ClassToken{}, {x});
  x = graph.add("positions", PositionEmbedding{graph.node(x).output[0]}, {x});
  return add_dropout(graph, "embedding_dropout", x, shape.dropout);
}

}  // namespace

ModelGraph vit(const VitShape& shape) {
  TransformerBlock block;
  block.width = shape.width;
  block.heads = block.kv_heads = shape.heads;
  block.mlp_width = 4 * shape.width;
  block.norm_eps = vit_norm_eps;
  block.mlp = MlpKind::gelu_erf;
  block.causal = false;
  block.dropout = shape.dropout;

  ModelGraph graph;
  NodeId x = add_patches(graph, shape);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    x = add_transformer_block(graph, fmt::format("block{}", layer), x, block);
  }
  x = add_norm(graph, "final_norm", x, NormKind::layer_norm, vit_norm_eps);
  x = graph.add("class_output", TakeToken{0}, {x});
  x = graph.add("head", Linear{shape.classes, true, {}}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return graph;
}

}  // namespace heteroperf
