#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/operators/operator.hpp"

namespace heteroperf {

/// The step that a linear takes with its product besides adding a bias.
struct LinearEpilogue {
  enum class Kind { none, gelu, residual };
  Kind kind = Kind::none;
  GeluForm gelu = GeluForm::erf;
};
enum class BatchNormFusion { none, relu, residual_relu };
enum class Activation { none, relu };
enum class Overwrite { forbidden, allowed };

using OperatorPtr = std::unique_ptr<Operator>;

/// The node that an operator is made for, and the type of its tensors.
struct OperatorPlace {
  const ModelGraph& graph;
  const Node& node;
  at::ScalarType type;

  const Shape& input(std::size_t i = 0) const { return graph.node(node.inputs[i]).output; }
};

// Every kind of node has its operator. Further arguments join what stands around it in a chain.
/// residual: a second input, added to the output.
OperatorPtr make(const Linear&, const OperatorPlace&, LinearEpilogue epilogue = {});
/// residual_relu: a second input, added before the relu.
OperatorPtr make(const BatchNorm&, const OperatorPlace&,
                 BatchNormFusion fusion = BatchNormFusion::none);
OperatorPtr make(const Add&, const OperatorPlace&, Activation activation = Activation::none);
/// With `positions` a second parameter, their table, is added.
OperatorPtr make(const Embedding&, const OperatorPlace&,
                 const PositionEmbedding* positions = nullptr);
/// Overwrite::allowed: the backward pass may leave the gradient where the logits were.
OperatorPtr make(const CrossEntropy&, const OperatorPlace&,
                 Overwrite logits = Overwrite::forbidden);
OperatorPtr make(const Input&, const OperatorPlace&);
OperatorPtr make(const Conv2d&, const OperatorPlace&);
OperatorPtr make(const LayerNorm&, const OperatorPlace&);
OperatorPtr make(const RmsNorm&, const OperatorPlace&);
OperatorPtr make(const Relu&, const OperatorPlace&);
OperatorPtr make(const Gelu&, const OperatorPlace&);
OperatorPtr make(const Silu&, const OperatorPlace&);
OperatorPtr make(const Tanh&, const OperatorPlace&);
OperatorPtr make(const Multiply&, const OperatorPlace&);
OperatorPtr make(const Concat&, const OperatorPlace&);
OperatorPtr make(const MaxPool&, const OperatorPlace&);
OperatorPtr make(const AvgPool&, const OperatorPlace&);
OperatorPtr make(const GlobalAvgPool&, const OperatorPlace&);
OperatorPtr make(const Flatten&, const OperatorPlace&);
OperatorPtr make(const ToSequence&, const OperatorPlace&);
OperatorPtr make(const PositionEmbedding&, const OperatorPlace&);
OperatorPtr make(const TypeEmbedding&, const OperatorPlace&);
OperatorPtr make(const ClassToken&, const OperatorPlace&);
OperatorPtr make(const TakeToken&, const OperatorPlace&);
OperatorPtr make(const TokenPool&, const OperatorPlace&);
OperatorPtr make(const InsertTokens&, const OperatorPlace&);
OperatorPtr make(const Rotary&, const OperatorPlace&);
OperatorPtr make(const Attention&, const OperatorPlace&);
OperatorPtr make(const CrossAttention&, const OperatorPlace&);
/// Attention on a part of every sequence. `group` has the ranks with all parts, in their order, and
/// runs it together.
OperatorPtr make_context_attention(const Attention&, Communicator& group);
/// Inserts rows into a part of every sequence. Their gradient here is this rank's summand.
OperatorPtr make_context_insertion(const InsertTokens&, const OperatorPlace&, Communicator& group);
/// Pools a row of sequences of which each rank of `group` has a part: {B, h} on the rank with the
/// first part, {0, h} on the others.
OperatorPtr make_context_pool(const TakeToken&, Communicator& group);
OperatorPtr make_context_pool(const TokenPool&, Communicator& group);
OperatorPtr make(const Dropout&, const OperatorPlace&);
OperatorPtr make(const SquaredError&, const OperatorPlace&);
OperatorPtr make(const Contrastive&, const OperatorPlace&);
/// silu(first input) · second input.
OperatorPtr make_swiglu();
/// One rank's entries of a vocabulary of `all`: those from `first` on, as many as its local shapes
/// say.
struct VocabularyPart {
  std::int64_t first = 0, all = 0;
};
/// Tokens of other ranks give rows of zeros: the sum over the ranks is the embedding.
OperatorPtr make_vocabulary_embedding(const Embedding& attributes, VocabularyPart part);
/// Logits of this rank's part; targets and loss are the same on all ranks of the group, which run
/// it together.
OperatorPtr make_vocabulary_cross_entropy(const CrossEntropy& attributes, VocabularyPart part,
                                          Communicator& group,
                                          Overwrite logits = Overwrite::forbidden);

/// Counts the rows of `logits` {…, classes} whose largest value is at the class that `targets` {…}
/// names. Of equal values the lowest class counts.
std::uint64_t count_right(const at::Tensor& logits, const at::Tensor& targets);

/// The same where every rank of `group` has the columns of some classes, from `first_class` on.
/// Collective; the same count on all of them.
std::uint64_t count_right(const at::Tensor& logits, const at::Tensor& targets,
                          std::int64_t first_class, Communicator& group);

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
