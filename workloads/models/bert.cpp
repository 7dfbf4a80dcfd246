#include "workloads/models/bert.hpp"

#include <fmt/format.h>

namespace heteroperf {
namespace {

constexpr double bert_norm_eps = 1e-12;
constexpr std::int64_t segment_types = 2;

NodeId add_embeddings(ModelGraph& graph, const BertShape& shape) {
  NodeId x = graph.add("input", Input{InputKind::tokens, 0, 0, 0, shape.length}, {});
  x = graph.add("embedding", Embedding{shape.vocabulary, shape.width}, {x});
  x = graph.add("positions", PositionEmbedding{shape.positions}, {x});
  x = graph.add("types", TypeEmbedding{segment_types}, {x});
  x = add_norm(graph, "embedding_norm", x, NormKind::layer_norm, bert_norm_eps);
  return add_dropout(graph, "embedding_dropout", x, shape.dropout);
}

}  // namespace

ModelGraph bert(const BertShape& shape) {
  TransformerBlock block;
  block.width = shape.width;
  block.heads = block.kv_heads = shape.heads;
  block.mlp_width = 4 * shape.width;
  block.norm_eps = bert_norm_eps;
  block.norm_place = NormPlace::after;
  block.mlp = MlpKind::gelu_erf;
  block.causal = false;
  block.dropout = shape.dropout;

  ModelGraph graph;
  NodeId x = add_embeddings(graph, shape);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    x = add_transformer_block(graph, fmt::format("block{}", layer), x, block);
  }
  x = graph.add("first_token", TakeToken{0}, {x});
  x = graph.add("pooler", Linear{shape.width, true, {}}, {x});
  x = graph.add("pooler_tanh", Tanh{}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return graph;
}

}  // namespace heteroperf
