#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

enum class NormKind { layer_norm, layer_norm_no_bias, rms_norm };
enum class MlpKind { gelu_tanh, gelu_erf, swiglu };
/// The way in which positions enter. A `learned` table is added to the embedding, outside the
/// block; the others belong to attention.
enum class PositionKind { learned, rotary, alibi };
/// The norm stands before each sub-layer (GPT-2 and later), or after its residual sum (BERT).
enum class NormPlace { before, after };

/// A block of a transformer: attention and MLP, each with a residual connection.
struct TransformerBlock {
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;   ///< 0 means as many as heads
  std::int64_t mlp_width = 0;  ///< 0 means 4 · width
  NormKind norm = NormKind::layer_norm;
  double norm_eps = 1e-5;
  NormPlace norm_place = NormPlace::before;
  MlpKind mlp = MlpKind::gelu_tanh;
  PositionKind position_kind = PositionKind::learned;
  double rotary_base = 10000.0;
  bool causal = true;
  bool bias = true;  ///< false leaves out the biases of the linear layers
  double dropout = 0.0;
};

/// Adds a dropout node after `x`; returns `x` itself when p is 0.
NodeId add_dropout(ModelGraph& graph, const std::string& node_name, NodeId x, double p);

enum class HeadKind { untied, tied };

/// A decoder-only language model. The defaults are the suite's own GPT: learned positions,
/// pre-LayerNorm, causal attention, GELU MLP of 4 · width, final LayerNorm, untied head without
/// bias.
struct GptShape : TransformerBlock {
  std::int64_t layers = 0;
  std::int64_t vocabulary = 0;
  std::int64_t length = 0;     ///< number of tokens in one sample
  std::int64_t positions = 0;  ///< number of rows in a learned table; 0 means `length`
  HeadKind head = HeadKind::untied;
};

/// Builds the model. Throws UserError when `heads` does not divide `width`.
ModelGraph gpt(const GptShape& shape);

/// BERT's encoder and pooler as published (Devlin et al., arXiv 1810.04805): token, position and
/// type embeddings with a norm, post-norm blocks with erf GELU, a tanh pooler on the first token.
/// The published model has no task head, so the loss reads the pooled vector as logits.
struct BertShape {
  std::int64_t layers = 12, width = 768, heads = 12;
  std::int64_t vocabulary = 30522;
  std::int64_t length = 512;
  std::int64_t positions = 512;  ///< number of rows in the learned table
  double dropout = 0.0;
};

/// Builds the model. Throws UserError when the sequence is longer than the position table.
ModelGraph bert(const BertShape& shape);

/// A vision transformer (Dosovitskiy et al., arXiv 2010.11929): patches by one convolution, a class
/// token, learned positions, pre-norm blocks with erf GELU, and a head on the class token. Patches
/// that do not fill the image's edge are dropped.
struct VitShape {
  Input input;
  std::int64_t classes = 1000;
  std::int64_t patch = 16;
  std::int64_t layers = 12, width = 768, heads = 12;
  double dropout = 0.0;
};

/// Builds the model. Throws UserError for an image below one patch.
ModelGraph vit(const VitShape& shape);

struct TowerShape {
  std::int64_t layers = 12, width = 768, heads = 12;
};
/// CLIP (Radford et al., arXiv 2103.00020): a vision transformer with a norm before its blocks, a
/// causal text transformer read at the end of the text, which is the last token of the vocabulary,
/// and a contrastive loss over linear projections of both. Components "vision" and "text".
struct TwoTowerShape {
  Input image, text_input;
  std::int64_t patch = 32;
  TowerShape vision, text;
  std::int64_t vocabulary = 49408;
  std::int64_t embedding = 512;  ///< features that the two are compared in
  double dropout = 0.0;
};

/// Builds the model. Throws UserError for an image below one patch.
ModelGraph two_towers(const TwoTowerShape& shape);

/// A vision-language model of LLaVA's form (Liu et al., arXiv 2310.03744): the patches of an image
/// pass a vision transformer and a projector of two layers, and take the first places of the text
/// of a decoder. Components "vision", to which the projector belongs, and "text". A second encoder,
/// component "vision2" with a projector of its own, sees the same image in the same patches; its
/// rows are added to those of the first (additive mixture of features, Tong et al., arXiv
/// 2401.06209).
struct VisionLanguageShape {
  Input image;
  std::int64_t patch = 14;
  TowerShape vision;
  std::optional<TowerShape> second = {};
  GptShape text;  ///< the vocabulary's last token but one marks the places of the image
};

/// Builds the model. Throws UserError for an image below one patch, and where its patches do not
/// fit into the text.
ModelGraph vision_language(const VisionLanguageShape& shape);

/// Two streams with co-attention, ViLBERT's form (Lu et al., arXiv 1908.02265) with norms before
/// the sub-layers: blocks over the patches of an image and over a text, and after every `every` of
/// them an exchange. There each stream has a block whose queries are its own rows and whose keys
/// and values are made of the other one's. Whether both belong together is told from the product of
/// vectors pooled at their first rows. Components "vision" and "text", the latter with the loss.
struct CoAttentionShape {
  Input image, text_input;
  std::int64_t patch = 32;
  TowerShape vision, text;  ///< with as many layers each
  std::int64_t every = 2;   ///< blocks between exchanges
  std::int64_t vocabulary = 30522;
  std::int64_t embedding = 1024;  ///< features of the pooled vectors
  double dropout = 0.0;
};

/// Builds the model. Throws UserError for an image below one patch, and where `every` does not
/// divide the layers or the streams differ in them.
ModelGraph co_attention(const CoAttentionShape& shape);

}  // namespace heteroperf
