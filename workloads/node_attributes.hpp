#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>

namespace heteroperf {

/// The typed attributes of every kind of node. B is the batch, T a sequence length.

enum class InputKind { images, tokens };

/// The sample. images: {channels, height, width}; tokens: {T} of indices below `classes`.
struct Input {
  InputKind kind = InputKind::images;
  std::int64_t channels = 0, height = 0, width = 0;  ///< images
  std::int64_t length = 0;                           ///< tokens
  friend bool operator==(const Input&, const Input&) = default;
};

/// {Ci, H, W} → {Co, H', W'}; cross-correlation, zero padding.
struct Conv2d {
  std::int64_t out_channels = 0;
  std::array<std::int64_t, 2> kernel{1, 1}, stride{1, 1}, padding{0, 0};
  std::int64_t groups = 1;
  bool bias = false;
  friend bool operator==(const Conv2d&, const Conv2d&) = default;
};

/// {…, in} → {…, out}, y = x Wᵀ + b over the last dimension.
struct Linear {
  std::int64_t out_features = 0;
  bool bias = true;
  /// Name of the embedding node whose weight is used instead of an own one (a tied head).
  std::string tied_to;
  friend bool operator==(const Linear&, const Linear&) = default;
};

/// Over {C, H, W} per channel, statistics per micro-batch.
struct BatchNorm {
  double eps = 1e-5, momentum = 0.1;
  friend bool operator==(const BatchNorm&, const BatchNorm&) = default;
};
/// Over the last dimension.
struct LayerNorm {
  double eps = 1e-5;
  bool bias = true;
  friend bool operator==(const LayerNorm&, const LayerNorm&) = default;
};
/// x / sqrt(mean(x²) + eps) · w over the last dimension.
struct RmsNorm {
  double eps = 1e-5;
  friend bool operator==(const RmsNorm&, const RmsNorm&) = default;
};

struct Relu {
  friend bool operator==(const Relu&, const Relu&) = default;
};
enum class GeluForm { erf, tanh };
struct Gelu {
  GeluForm form = GeluForm::erf;
  friend bool operator==(const Gelu&, const Gelu&) = default;
};
struct Silu {
  friend bool operator==(const Silu&, const Silu&) = default;
};
struct Tanh {
  friend bool operator==(const Tanh&, const Tanh&) = default;
};
/// Element-wise sum of two or more equal shapes.
struct Add {
  friend bool operator==(const Add&, const Add&) = default;
};
/// Element-wise product of two equal shapes.
struct Multiply {
  friend bool operator==(const Multiply&, const Multiply&) = default;
};
/// Along the first dimension of a sample (channels of images, positions of sequences).
struct Concat {
  friend bool operator==(const Concat&, const Concat&) = default;
};

struct MaxPool {
  std::array<std::int64_t, 2> kernel{2, 2}, stride{2, 2}, padding{0, 0};
  friend bool operator==(const MaxPool&, const MaxPool&) = default;
};
/// Zero padding is not counted in the mean.
struct AvgPool {
  std::array<std::int64_t, 2> kernel{2, 2}, stride{2, 2}, padding{0, 0};
  friend bool operator==(const AvgPool&, const AvgPool&) = default;
};
/// {C, H, W} → {C}.
struct GlobalAvgPool {
  friend bool operator==(const GlobalAvgPool&, const GlobalAvgPool&) = default;
};
/// Any shape → {elements}.
struct Flatten {
  friend bool operator==(const Flatten&, const Flatten&) = default;
};
/// {C, H, W} → {H·W, C}: image positions become a sequence.
struct ToSequence {
  friend bool operator==(const ToSequence&, const ToSequence&) = default;
};

/// {T} of indices → {T, features}.
struct Embedding {
  std::int64_t vocabulary = 0, features = 0;
  friend bool operator==(const Embedding&, const Embedding&) = default;
};
/// {T, h} → {T, h}: adds row t of a learned table of `positions` ≥ T rows.
struct PositionEmbedding {
  std::int64_t positions = 0;
  friend bool operator==(const PositionEmbedding&, const PositionEmbedding&) = default;
};
/// {T, h} → {T, h}: adds row 0 of a learned table of `types` rows (one-segment inputs).
struct TypeEmbedding {
  std::int64_t types = 2;
  friend bool operator==(const TypeEmbedding&, const TypeEmbedding&) = default;
};
/// {T, h} → {T + 1, h}: a learned row in front.
struct ClassToken {
  friend bool operator==(const ClassToken&, const ClassToken&) = default;
};
/// {T, h} → {h}: row `index`.
struct TakeToken {
  std::int64_t index = 0;
  friend bool operator==(const TakeToken&, const TakeToken&) = default;
};

/// Rotary positions on packed {T, (heads + 2 kv_heads) · head_dim}: queries and keys are turned,
/// values pass. Pairs are (i, i + head_dim / 2); angle t · base^(−2i / head_dim).
struct Rotary {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double base = 10000.0;
  friend bool operator==(const Rotary&, const Rotary&) = default;
};
/// softmax(Q Kᵀ / sqrt(head_dim)) V on packed {T, (heads + 2 kv_heads) · head_dim} (all query
/// heads, then all key heads, then all value heads) → {T, heads · head_dim}. Query head i uses key
/// head i · kv_heads / heads. `alibi` adds −2^(−8(i+1)/heads) · (t − s) to the scores.
struct Attention {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;
  bool alibi = false;
  /// Some heads of a larger node, for alibi: heads first_head … of `all_heads` (0: of `heads`).
  /// Neither in files nor hashed: only a rank's local graph has them.
  std::int64_t first_head = 0, all_heads = 0;
  friend bool operator==(const Attention&, const Attention&) = default;
};

/// Keeps an element with probability 1 − p and divides it by 1 − p; identity in evaluation.
struct Dropout {
  double p = 0.0;
  friend bool operator==(const Dropout&, const Dropout&) = default;
};

/// Mean softmax cross-entropy over all targets of the global batch, logits {…, classes} → {1}.
struct CrossEntropy {
  double label_smoothing = 0.0;
  friend bool operator==(const CrossEntropy&, const CrossEntropy&) = default;
};

using Attributes = std::variant<Input, Conv2d, Linear, BatchNorm, LayerNorm, RmsNorm, Relu, Gelu,
                                Silu, Tanh, Add, Multiply, Concat, MaxPool, AvgPool, GlobalAvgPool,
                                Flatten, ToSequence, Embedding, PositionEmbedding, TypeEmbedding,
                                ClassToken, TakeToken, Rotary, Attention, Dropout, CrossEntropy>;

/// The name of a node's kind as in JSON files and reports ("conv2d", "layer_norm", …).
const char* kind_name(const Attributes& attributes);

}  // namespace heteroperf
