#include "workloads/models/transformers.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "metrics/base/error.hpp"

// A block has two sub-layers, attention and MLP. Each gets a norm and a residual sum, in the order
// that the model wants (NormPlace). The families GPT, BERT and ViT differ in what comes before the
// first block and after the last one. CLIP has two towers of such blocks; a vision-language model
// has a tower whose rows enter a decoder's sequence; two streams of co-attention look at each other
// between their blocks.

namespace heteroperf {
namespace {

/// Adds nodes to a component of a graph, under the component's name.
struct Component {
  ModelGraph& graph;
  std::string name = "main";
  std::string prefix = {};  ///< its nodes' names begin with it

  NodeId add(const std::string& node_name, Attributes attributes,
             std::vector<NodeId> inputs) const {
    return graph.add(prefix + node_name, std::move(attributes), std::move(inputs), name);
  }
  NodeId dropout(const std::string& node_name, NodeId x, double p) const {
    return p == 0.0 ? x : add(node_name, Dropout{p}, {x});
  }
};

/// Puts in what a block's zeros stand for. Throws UserError where the heads do not divide the
/// width.
TransformerBlock completed(const std::string& prefix, TransformerBlock block) {
  if (block.kv_heads == 0) block.kv_heads = block.heads;
  if (block.mlp_width == 0) block.mlp_width = 4 * block.width;
  if (block.heads >= 1 && block.kv_heads >= 1 && block.width % block.heads == 0) return block;
  throw UserError(fmt::format("block '{}' has width {}, {} heads and {} kv_heads", prefix,
                              block.width, block.heads, block.kv_heads),
                  "the heads must divide the width");
}

/// Adds a linear layer with the block's choice of a bias.
NodeId linear(const Component& graph, const std::string& node_name, NodeId x, std::int64_t features,
              const TransformerBlock& block) {
  return graph.add(node_name, Linear{features, block.bias, {}}, {x});
}

/// Adds packed queries, keys and values, the attention itself and the output projection.
NodeId attention(const Component& graph, const std::string& prefix, NodeId x,
                 const TransformerBlock& block) {
  const std::int64_t head_dim = block.width / block.heads;
  x = linear(graph, prefix + ".qkv", x, (block.heads + 2 * block.kv_heads) * head_dim, block);
  if (block.position_kind == PositionKind::rotary) {
    x = graph.add(prefix + ".rotary",
                  Rotary{block.heads, block.kv_heads, head_dim, block.rotary_base}, {x});
  }
  const bool alibi = block.position_kind == PositionKind::alibi;
  x = graph.add(prefix + ".core",
                Attention{block.heads, block.kv_heads, head_dim, block.causal, alibi}, {x});
  x = linear(graph, prefix + ".proj", x, block.width, block);
  return graph.dropout(prefix + ".dropout", x, block.dropout);
}

/// Adds the first half of an MLP, up to and with its activation.
NodeId activated(const Component& graph, const std::string& prefix, NodeId x,
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

/// Adds the whole MLP.
NodeId mlp(const Component& graph, const std::string& prefix, NodeId x,
           const TransformerBlock& block) {
  x = activated(graph, prefix, x, block);
  x = linear(graph, prefix + ".down", x, block.width, block);
  return graph.dropout(prefix + ".dropout", x, block.dropout);
}

NodeId add_norm(const Component& graph, const std::string& node_name, NodeId x, NormKind kind,
                double eps) {
  if (kind == NormKind::rms_norm) return graph.add(node_name, RmsNorm{eps}, {x});
  return graph.add(node_name, LayerNorm{eps, kind == NormKind::layer_norm}, {x});
}

/// Adds a sub-layer with its norm and residual sum.
template <class SubLayer>
NodeId residual(const Component& graph, const std::string& prefix, const std::string& part,
                NodeId x, const TransformerBlock& block, SubLayer sub_layer) {
  const std::string inner = prefix + "." + part, norm = inner + "_norm", sum = inner + "_add";
  if (block.norm_place == NormPlace::after) {
    const NodeId added = graph.add(sum, Add{}, {x, sub_layer(graph, inner, x, block)});
    return add_norm(graph, norm, added, block.norm, block.norm_eps);
  }
  const NodeId normed = add_norm(graph, norm, x, block.norm, block.norm_eps);
  return graph.add(sum, Add{}, {x, sub_layer(graph, inner, normed, block)});
}

/// Adds the blocks of a model after `x` ({T, width}). Their nodes are named block0.attn.qkv and so
/// on, from `first` on.
NodeId add_blocks(const Component& graph, NodeId x, std::int64_t layers,
                  const TransformerBlock& asked, std::int64_t first = 0) {
  for (std::int64_t layer = first; layer < first + layers; ++layer) {
    const std::string prefix = fmt::format("block{}", layer);
    const TransformerBlock block = completed(prefix, asked);
    x = residual(graph, prefix, "attn", x, block, attention);
    x = residual(graph, prefix, "mlp", x, block, mlp);
  }
  return x;
}

/// Returns the block that BERT and ViT share: every position sees all others.
template <class Encoder>
TransformerBlock encoder_block(const Encoder& shape, double norm_eps) {
  return {.width = shape.width,
          .heads = shape.heads,
          .norm_eps = norm_eps,
          .mlp = MlpKind::gelu_erf,
          .causal = false,
          .dropout = shape.dropout};
}

enum class FirstRow { class_token, patch };

/// Adds the patches of an image as rows, perhaps a class token in front, and learned positions.
NodeId add_patches(const Component& graph, NodeId image, std::int64_t patch, std::int64_t width,
                   bool bias, FirstRow first = FirstRow::class_token) {
  // One convolution cuts the image into patches.
  NodeId x = graph.add(
      "patches",
      Conv2d{
          .out_channels = width, .kernel = {patch, patch}, .stride = {patch, patch}, .bias = bias},
      {image});
  x = graph.add("sequence", ToSequence{}, {x});
  if (first == FirstRow::class_token) x = graph.add("class_token", ClassToken{}, {x});
  return graph.add("positions", PositionEmbedding{graph.graph.node(x).output[0]}, {x});
}

/// A tower of CLIP: its blocks see GELU's exact form.
TransformerBlock tower_block(const TowerShape& shape, bool causal, double dropout) {
  return {.width = shape.width,
          .heads = shape.heads,
          .mlp = MlpKind::gelu_erf,
          .causal = causal,
          .dropout = dropout};
}

}  // namespace

NodeId add_dropout(ModelGraph& graph, const std::string& node_name, NodeId x, double p) {
  return p == 0.0 ? x : graph.add(node_name, Dropout{p}, {x});
}

namespace {

/// Adds a decoder with its input and its loss. Rows of an image take places in its text.
void add_decoder(const Component& graph, const GptShape& shape,
                 const std::optional<NodeId>& image_rows = {}) {
  const NodeId tokens = graph.add("input", Input{InputKind::tokens, 0, 0, 0, shape.length}, {});
  NodeId x = graph.add("embedding", Embedding{shape.vocabulary, shape.width}, {tokens});
  if (image_rows) {
    x = graph.add("image", InsertTokens{shape.vocabulary - 2}, {x, tokens, *image_rows});
  }
  if (shape.position_kind == PositionKind::learned) {
    const std::int64_t rows = shape.positions == 0 ? shape.length : shape.positions;
    x = graph.add("positions", PositionEmbedding{rows}, {x});
  }
  x = graph.dropout("embedding_dropout", x, shape.dropout);
  x = add_blocks(graph, x, shape.layers, shape);
  x = add_norm(graph, "final_norm", x, shape.norm, shape.norm_eps);
  const bool tied = shape.head == HeadKind::tied;
  x = graph.add("head", Linear{shape.vocabulary, false, tied ? graph.prefix + "embedding" : ""},
                {x});
  graph.graph.add("loss", CrossEntropy{}, {x}, graph.name);
}

}  // namespace

ModelGraph gpt(const GptShape& shape) {
  ModelGraph result;
  add_decoder({result}, shape);
  return result;
}

ModelGraph bert(const BertShape& shape) {
  constexpr double norm_eps = 1e-12;
  constexpr std::int64_t segment_types = 2;
  TransformerBlock block = encoder_block(shape, norm_eps);
  block.norm_place = NormPlace::after;
  ModelGraph result;
  const Component graph{result};
  NodeId x = graph.add("input", Input{InputKind::tokens, 0, 0, 0, shape.length}, {});
  x = graph.add("embedding", Embedding{shape.vocabulary, shape.width}, {x});
  x = graph.add("positions", PositionEmbedding{shape.positions}, {x});
  x = graph.add("types", TypeEmbedding{segment_types}, {x});
  x = add_norm(graph, "embedding_norm", x, NormKind::layer_norm, norm_eps);
  x = graph.dropout("embedding_dropout", x, shape.dropout);
  x = add_blocks(graph, x, shape.layers, block);
  x = graph.add("first_token", TakeToken{0}, {x});
  x = graph.add("pooler", Linear{shape.width, true, {}}, {x});
  x = graph.add("pooler_tanh", Tanh{}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return result;
}

ModelGraph vit(const VitShape& shape) {
  constexpr double norm_eps = 1e-6;
  ModelGraph result;
  const Component graph{result};
  NodeId x = graph.add("input", shape.input, {});
  x = add_patches(graph, x, shape.patch, shape.width, true);
  x = graph.dropout("embedding_dropout", x, shape.dropout);
  x = add_blocks(graph, x, shape.layers, encoder_block(shape, norm_eps));
  x = add_norm(graph, "final_norm", x, NormKind::layer_norm, norm_eps);
  x = graph.add("class_output", TakeToken{0}, {x});
  x = graph.add("head", Linear{shape.classes, true, {}}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return result;
}

ModelGraph two_towers(const TwoTowerShape& shape) {
  ModelGraph result;
  const Component vision{result, "vision", "vision."}, text{result, "text", "text."};
  NodeId v = vision.add("input", shape.image, {});
  v = add_patches(vision, v, shape.patch, shape.vision.width, false);
  v = vision.add("first_norm", LayerNorm{}, {v});
  v = add_blocks(vision, v, shape.vision.layers, tower_block(shape.vision, false, shape.dropout));
  v = vision.add("class_output", TakeToken{0}, {v});
  v = vision.add("final_norm", LayerNorm{}, {v});
  v = vision.add("projection", Linear{shape.embedding, false, {}}, {v});

  const NodeId tokens = text.add("input", shape.text_input, {});
  NodeId t = text.add("embedding", Embedding{shape.vocabulary, shape.text.width}, {tokens});
  t = text.add("positions", PositionEmbedding{shape.text_input.length}, {t});
  t = add_blocks(text, t, shape.text.layers, tower_block(shape.text, true, shape.dropout));
  t = text.add("final_norm", LayerNorm{}, {t});
  t = text.add("end", TokenPool{shape.vocabulary - 1}, {t, tokens});
  t = text.add("projection", Linear{shape.embedding, false, {}}, {t});
  result.add("loss", Contrastive{}, {v, t}, "text");
  return result;
}

namespace {

/// Adds an image encoder with its projector; gives rows of the text's width.
NodeId add_encoder(const Component& graph, NodeId image, const VisionLanguageShape& shape,
                   const TowerShape& tower) {
  NodeId v = add_patches(graph, image, shape.patch, tower.width, false, FirstRow::patch);
  v = graph.add("first_norm", LayerNorm{}, {v});
  v = add_blocks(graph, v, tower.layers, tower_block(tower, false, shape.text.dropout));
  v = graph.add("final_norm", LayerNorm{}, {v});
  v = graph.add("projector.up", Linear{shape.text.width, true, {}}, {v});
  v = graph.add("projector.gelu", Gelu{GeluForm::erf}, {v});
  return graph.add("projector.down", Linear{shape.text.width, true, {}}, {v});
}

}  // namespace

ModelGraph vision_language(const VisionLanguageShape& shape) {
  ModelGraph result;
  const Component vision{result, "vision", "vision."}, text{result, "text", "text."};
  const NodeId image = vision.add("input", shape.image, {});
  NodeId v = add_encoder(vision, image, shape, shape.vision);
  if (shape.second) {
    const NodeId other = add_encoder({result, "vision2", "vision2."}, image, shape, *shape.second);
    v = text.add("mixture", Add{}, {v, other});
  }
  add_decoder(text, shape.text, v);
  return result;
}

namespace {

/// Adds a stream's part of an exchange: a block whose attention goes to the rows of another one.
NodeId add_exchange(const Component& graph, const std::string& prefix, NodeId x, NodeId others,
                    const TransformerBlock& asked) {
  const TransformerBlock block = completed(graph.prefix + prefix, asked);
  const std::int64_t head_dim = block.width / block.heads;
  NodeId kv = add_norm(graph, prefix + ".attn.others_norm", others, block.norm, block.norm_eps);
  kv = linear(graph, prefix + ".attn.kv", kv, 2 * block.kv_heads * head_dim, block);
  const auto cross = [kv, head_dim](const Component& in, const std::string& inner, NodeId rows,
                                    const TransformerBlock& of) {
    const NodeId q = linear(in, inner + ".q", rows, of.heads * head_dim, of);
    NodeId y = in.add(inner + ".core", CrossAttention{of.heads, of.kv_heads, head_dim}, {q, kv});
    y = linear(in, inner + ".proj", y, of.width, of);
    return in.dropout(inner + ".dropout", y, of.dropout);
  };
  x = residual(graph, prefix, "attn", x, block, cross);
  return residual(graph, prefix, "mlp", x, block, mlp);
}

/// Pools the first row of a stream.
NodeId add_pooler(const Component& graph, NodeId x, std::int64_t features) {
  x = graph.add("first_row", TakeToken{0}, {x});
  x = graph.add("final_norm", LayerNorm{}, {x});
  x = graph.add("pooler", Linear{features, true, {}}, {x});
  return graph.add("pooler_relu", Relu{}, {x});
}

}  // namespace

ModelGraph co_attention(const CoAttentionShape& shape) {
  const std::int64_t layers = shape.vision.layers;
  if (shape.text.layers != layers || shape.every < 1 || layers % shape.every != 0) {
    throw UserError(fmt::format("streams of {} and {} layers with an exchange after every {}",
                                layers, shape.text.layers, shape.every),
                    "both have the same layers, which `every` divides");
  }
  ModelGraph result;
  const Component vision{result, "vision", "vision."}, text{result, "text", "text."};
  const TransformerBlock vision_block = tower_block(shape.vision, false, shape.dropout);
  const TransformerBlock text_block = tower_block(shape.text, false, shape.dropout);
  NodeId v = vision.add("input", shape.image, {});
  v = add_patches(vision, v, shape.patch, shape.vision.width, true);
  NodeId t = text.add("input", shape.text_input, {});
  t = text.add("embedding", Embedding{shape.vocabulary, shape.text.width}, {t});
  t = text.add("positions", PositionEmbedding{shape.text_input.length}, {t});
  for (std::int64_t first = 0; first < layers; first += shape.every) {
    const std::string exchange = fmt::format("exchange{}", first / shape.every);
    v = add_blocks(vision, v, shape.every, vision_block, first);
    t = add_blocks(text, t, shape.every, text_block, first);
    const NodeId of_vision = v;
    v = add_exchange(vision, exchange, v, t, vision_block);
    t = add_exchange(text, exchange, t, of_vision, text_block);
  }
  v = add_pooler(vision, v, shape.embedding);
  t = add_pooler(text, t, shape.embedding);
  t = text.add("both", Multiply{}, {v, t});
  t = text.add("head", Linear{2, true, {}}, {t});
  result.add("loss", CrossEntropy{}, {t}, "text");
  return result;
}

}  // namespace heteroperf
