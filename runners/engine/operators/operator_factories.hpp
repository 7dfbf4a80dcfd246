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

/// residual: a second input, added to the output.
OperatorPtr make_linear(const Linear& attributes, LinearEpilogue epilogue = {});
OperatorPtr make_conv2d(const Conv2d& attributes);
/// residual_relu: a second input, added before the relu.
OperatorPtr make_batch_norm(const BatchNorm& attributes, std::int64_t channels, at::ScalarType type,
                            BatchNormFusion fusion = BatchNormFusion::none);
OperatorPtr make_layer_norm(const LayerNorm& attributes);
OperatorPtr make_rms_norm(const RmsNorm& attributes);
OperatorPtr make_relu();
OperatorPtr make_gelu(const Gelu& attributes);
OperatorPtr make_silu();
OperatorPtr make_tanh();
/// Two or more inputs of one shape.
OperatorPtr make_add(std::size_t inputs, Activation activation = Activation::none);
OperatorPtr make_multiply();
/// silu(first input) · second input.
OperatorPtr make_swiglu();
/// `extents`: of each input along the first dimension of a sample.
OperatorPtr make_concat(std::vector<std::int64_t> extents);
OperatorPtr make_max_pool(const MaxPool& attributes, const Shape& input);
OperatorPtr make_avg_pool(const AvgPool& attributes, const Shape& input);
OperatorPtr make_global_avg_pool(const Shape& input);
OperatorPtr make_flatten(const Shape& input);
OperatorPtr make_to_sequence(const Shape& input);
enum class Positions { none, learned };
/// learned: a second parameter, the position table, is added.
OperatorPtr make_embedding(const Embedding& attributes, Positions positions = Positions::none);
OperatorPtr make_position_embedding();
OperatorPtr make_type_embedding();
OperatorPtr make_class_token();
OperatorPtr make_take_token(const TakeToken& attributes, const Shape& input);
OperatorPtr make_rotary(const Rotary& attributes);
OperatorPtr make_attention(const Attention& attributes);
OperatorPtr make_dropout(const Dropout& attributes);
/// One rank's entries of a vocabulary of `all`: those from `first` on, as many as its local shapes
/// say.
struct VocabularyPart {
  std::int64_t first = 0, all = 0;
};
/// Tokens of other ranks give rows of zeros: the sum over the ranks is the embedding.
OperatorPtr make_vocabulary_embedding(const Embedding& attributes, VocabularyPart part);
/// Overwrite::allowed: the backward pass may leave the gradient where the logits were.
OperatorPtr make_cross_entropy(const CrossEntropy& attributes,
                               Overwrite logits = Overwrite::forbidden);
/// Logits of this rank's part; targets and loss are the same on all ranks of the group, which run
/// it together.
OperatorPtr make_vocabulary_cross_entropy(const CrossEntropy& attributes, VocabularyPart part,
                                          Communicator& group,
                                          Overwrite logits = Overwrite::forbidden);
/// `op` for a rank whose gradients of the inputs named by `given` = false are not counted: another
/// rank gives the same ones.
OperatorPtr make_withholding(OperatorPtr op, std::vector<bool> given);

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
