#include "workloads/models/gpt.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

TransformerBlock block_of(const GptShape& shape) {
  TransformerBlock block;
  block.width = shape.width;
  block.heads = shape.heads;
  block.kv_heads = shape.kv_heads == 0 ? shape.heads : shape.kv_heads;
  block.mlp_width = shape.mlp_width == 0 ? 4 * shape.width : shape.mlp_width;
  block.norm = shape.norm;
  block.norm_eps = shape.norm_eps;
  block.mlp = shape.mlp;
  block.positions = shape.position_kind;
  block.rotary_base = shape.rotary_base;
  block.bias = shape.bias;
  block.dropout = shape.dropout;
  return block;
}

NodeId add_embeddings(ModelGraph& graph, const GptShape& shape) {
  const NodeId tokens = graph.add("input", Input{InputKind::tokens, 0, 0, 0, shape.length}, {});
  NodeId x = graph.add("embedding", Embedding{shape.vocabulary, shape.width}, {tokens});
  if (shape.position_kind == PositionKind::learned) {
    const std::int64_t rows = shape.positions == 0 ? shape.length : shape.positions;
    x = graph.add("positions", PositionEmbedding{rows}, {x});
  }
  return add_dropout(graph, "embedding_dropout", x, shape.dropout);
}

}  // namespace

ModelGraph gpt(const GptShape& shape) {
  if (shape.layers < 1) {
    throw UserError(fmt::format("a language model has {} layers", shape.layers),
                    "it needs at least 1");
  }
  ModelGraph graph;
  NodeId x = add_embeddings(graph, shape);
  const TransformerBlock block = block_of(shape);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    x = add_transformer_block(graph, fmt::format("block{}", layer), x, block);
  }
  x = add_norm(graph, "final_norm", x, shape.norm, shape.norm_eps);
  const bool tied = shape.head == HeadKind::tied;
  x = graph.add("head", Linear{shape.vocabulary, false, tied ? "embedding" : ""}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return graph;
}

}  // namespace heteroperf
