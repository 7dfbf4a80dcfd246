#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>

namespace heteroperf {

// The kinds of nodes of a model graph. A kind is a struct of typed attributes, followed by its row:
// the name that files and reports use, the number of inputs, and the fields in the order in which
// files hold them. Reading, writing, checking and hashing a node follow from the row. Further rules
// of a kind (shapes, counts, kept tensors) stand in node_rules.cpp, its operator in the engine.
//
// In the comments below B is the batch and T a sequence length; shapes are those of one sample.

/// The values that a field accepts. A field of the rule `unused_at_default` may be superfluous
/// because of other fields: files leave it out while it holds its default. It is never negative.
enum class FieldRule { any, positive, not_negative, unused_at_default, fraction, above_zero };

/// A member of an attribute struct, with its key in files and the values that it accepts.
template <class Struct, class Value>
struct Field {
  const char* key;
  Value Struct::*member;
  FieldRule rule;
};

/// The largest accepted extent or count in a graph.
inline constexpr std::int64_t largest_extent = std::int64_t{1} << 32;
/// Stands for a number of inputs that is two or any more.
inline constexpr int two_or_more = -2;

template <class Fields>
struct KindRow {
  const char* name;
  int inputs;  ///< number of inputs, or two_or_more
  Fields fields;
  /// An element of the output depends on the elements at its place in the inputs alone, which all
  /// have one shape.
  bool element_wise = false;
};

namespace detail {

/// Selects the row of a kind by overload.
template <class Struct>
using Kind = std::type_identity<Struct>;

template <class S, class V>
constexpr Field<S, V> field(const char* key, V S::*member, FieldRule rule = FieldRule::any) {
  return {key, member, rule};
}
template <class... F>
constexpr KindRow<std::tuple<F...>> kind(const char* name, int inputs, F... fields) {
  return {name, inputs, {fields...}, false};
}
template <class... F>
constexpr auto element_wise(const char* name, int inputs, F... fields) {
  auto row = kind(name, inputs, fields...);
  row.element_wise = true;
  return row;
}
template <class Pool>
constexpr auto pool(const char* name) {
  return kind(name, 1, field("kernel", &Pool::kernel, FieldRule::positive),
              field("stride", &Pool::stride, FieldRule::positive),
              field("padding", &Pool::padding, FieldRule::not_negative));
}

}  // namespace detail

enum class InputKind { images, tokens };
constexpr std::array<std::string_view, 2> value_names(InputKind) { return {"images", "tokens"}; }

/// The sample: {channels, height, width} of an image, or {T} indices of tokens.
struct Input {
  InputKind kind = InputKind::images;
  std::int64_t channels = 0, height = 0, width = 0;  ///< images only
  std::int64_t length = 0;                           ///< tokens only
};
constexpr auto describe(detail::Kind<Input>) {
  return detail::kind("input", 0, detail::field("sample", &Input::kind),
                      detail::field("channels", &Input::channels, FieldRule::unused_at_default),
                      detail::field("height", &Input::height, FieldRule::unused_at_default),
                      detail::field("width", &Input::width, FieldRule::unused_at_default),
                      detail::field("length", &Input::length, FieldRule::unused_at_default));
}

/// Maps {Ci, H, W} to {Co, H', W'} by cross-correlation with zero padding.
struct Conv2d {
  std::int64_t out_channels = 0;
  std::array<std::int64_t, 2> kernel{1, 1}, stride{1, 1}, padding{0, 0};
  std::int64_t groups = 1;
  bool bias = false;
};
constexpr auto describe(detail::Kind<Conv2d>) {
  return detail::kind("conv2d", 1,
                      detail::field("out_channels", &Conv2d::out_channels, FieldRule::positive),
                      detail::field("kernel", &Conv2d::kernel, FieldRule::positive),
                      detail::field("stride", &Conv2d::stride, FieldRule::positive),
                      detail::field("padding", &Conv2d::padding, FieldRule::not_negative),
                      detail::field("groups", &Conv2d::groups, FieldRule::positive),
                      detail::field("bias", &Conv2d::bias));
}

/// Maps {…, in} to {…, out} by y = x Wᵀ + b over the last dimension.
struct Linear {
  std::int64_t out_features = 0;
  bool bias = true;
  /// Names the embedding node whose weight is used in place of a weight of this node (a tied head).
  std::string tied_to;
};
constexpr auto describe(detail::Kind<Linear>) {
  return detail::kind("linear", 1,
                      detail::field("out_features", &Linear::out_features, FieldRule::positive),
                      detail::field("bias", &Linear::bias),
                      detail::field("tied_to", &Linear::tied_to, FieldRule::unused_at_default));
}

/// Normalises {C, H, W} per channel, with statistics per micro-batch.
struct BatchNorm {
  double eps = 1e-5, momentum = 0.1;
};
constexpr auto describe(detail::Kind<BatchNorm>) {
  return detail::kind("batch_norm", 1, detail::field("eps", &BatchNorm::eps, FieldRule::above_zero),
                      detail::field("momentum", &BatchNorm::momentum, FieldRule::fraction));
}
/// Normalises over the last dimension.
struct LayerNorm {
  double eps = 1e-5;
  bool bias = true;
};
constexpr auto describe(detail::Kind<LayerNorm>) {
  return detail::kind("layer_norm", 1, detail::field("eps", &LayerNorm::eps, FieldRule::above_zero),
                      detail::field("bias", &LayerNorm::bias));
}
/// Computes x / sqrt(mean(x²) + eps) · w over the last dimension.
struct RmsNorm {
  double eps = 1e-5;
};
constexpr auto describe(detail::Kind<RmsNorm>) {
  return detail::kind("rms_norm", 1, detail::field("eps", &RmsNorm::eps, FieldRule::above_zero));
}

struct Relu {};
constexpr auto describe(detail::Kind<Relu>) { return detail::element_wise("relu", 1); }
enum class GeluForm { erf, tanh };
constexpr std::array<std::string_view, 2> value_names(GeluForm) { return {"erf", "tanh"}; }
struct Gelu {
  GeluForm form = GeluForm::erf;
};
constexpr auto describe(detail::Kind<Gelu>) {
  return detail::element_wise("gelu", 1, detail::field("form", &Gelu::form));
}
struct Silu {};
constexpr auto describe(detail::Kind<Silu>) { return detail::element_wise("silu", 1); }
struct Tanh {};
constexpr auto describe(detail::Kind<Tanh>) { return detail::element_wise("tanh", 1); }
/// Adds two or more inputs of equal shape element by element.
struct Add {};
constexpr auto describe(detail::Kind<Add>) { return detail::element_wise("add", two_or_more); }
/// Multiplies two inputs of equal shape element by element.
struct Multiply {};
constexpr auto describe(detail::Kind<Multiply>) { return detail::element_wise("multiply", 2); }
/// Joins inputs along the first dimension of a sample (channels of images, rows of sequences).
struct Concat {};
constexpr auto describe(detail::Kind<Concat>) { return detail::kind("concat", two_or_more); }

struct MaxPool {
  std::array<std::int64_t, 2> kernel{2, 2}, stride{2, 2}, padding{0, 0};
};
constexpr auto describe(detail::Kind<MaxPool>) { return detail::pool<MaxPool>("max_pool"); }
/// Averages over windows. Padding with zeros does not count in the mean.
struct AvgPool {
  std::array<std::int64_t, 2> kernel{2, 2}, stride{2, 2}, padding{0, 0};
};
constexpr auto describe(detail::Kind<AvgPool>) { return detail::pool<AvgPool>("avg_pool"); }
/// Averages {C, H, W} to {C}.
struct GlobalAvgPool {};
constexpr auto describe(detail::Kind<GlobalAvgPool>) { return detail::kind("global_avg_pool", 1); }
/// Turns any shape into {elements}.
struct Flatten {};
constexpr auto describe(detail::Kind<Flatten>) { return detail::kind("flatten", 1); }
/// Turns {C, H, W} into {H·W, C}: the positions of an image become a sequence.
struct ToSequence {};
constexpr auto describe(detail::Kind<ToSequence>) { return detail::kind("to_sequence", 1); }

/// Maps {T} indices to {T, features} by looking up rows of a learned table.
struct Embedding {
  std::int64_t vocabulary = 0, features = 0;
};
constexpr auto describe(detail::Kind<Embedding>) {
  return detail::kind("embedding", 1,
                      detail::field("vocabulary", &Embedding::vocabulary, FieldRule::positive),
                      detail::field("features", &Embedding::features, FieldRule::positive));
}
/// Adds row t of a learned table of `positions` ≥ T rows to row t of {T, h}.
struct PositionEmbedding {
  std::int64_t positions = 0;
};
constexpr auto describe(detail::Kind<PositionEmbedding>) {
  return detail::kind(
      "position_embedding", 1,
      detail::field("positions", &PositionEmbedding::positions, FieldRule::positive));
}
/// Adds row 0 of a learned table of `types` rows to {T, h} (inputs have one segment).
struct TypeEmbedding {
  std::int64_t types = 2;
};
constexpr auto describe(detail::Kind<TypeEmbedding>) {
  return detail::kind("type_embedding", 1,
                      detail::field("types", &TypeEmbedding::types, FieldRule::positive));
}
/// Puts a learned row in front: {T, h} becomes {T + 1, h}.
struct ClassToken {};
constexpr auto describe(detail::Kind<ClassToken>) { return detail::kind("class_token", 1); }
/// Takes row `index` of {T, h}; the output is {h}.
struct TakeToken {
  std::int64_t index = 0;
};
constexpr auto describe(detail::Kind<TakeToken>) {
  return detail::kind("take_token", 1,
                      detail::field("index", &TakeToken::index, FieldRule::not_negative));
}

/// Applies rotary positions to packed {T, (heads + 2 kv_heads) · head_dim}: it turns queries and
/// keys, and values pass. Pairs are (i, i + head_dim / 2), angles t · base^(−2i / head_dim).
struct Rotary {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double base = 10000.0;
};
constexpr auto describe(detail::Kind<Rotary>) {
  return detail::kind("rotary", 1, detail::field("heads", &Rotary::heads, FieldRule::positive),
                      detail::field("kv_heads", &Rotary::kv_heads, FieldRule::positive),
                      detail::field("head_dim", &Rotary::head_dim, FieldRule::positive),
                      detail::field("base", &Rotary::base, FieldRule::above_zero));
}
/// Computes softmax(Q Kᵀ / sqrt(head_dim)) V. The input is packed as {T, (heads + 2 kv_heads) ·
/// head_dim}, all query heads, then all key heads, then all value heads; the output is
/// {T, heads · head_dim}. Query head i uses key head i · kv_heads / heads. `alibi` adds
/// −2^(−8(i+1)/heads) · (t − s) to the scores.
struct Attention {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;
  bool alibi = false;
  /// Say which heads of a larger node these are, for alibi: first_head … of `all_heads` (0 stands
  /// for `heads`). They are neither in files nor hashed: only a rank's local graph has them.
  std::int64_t first_head = 0, all_heads = 0;
};
constexpr auto describe(detail::Kind<Attention>) {
  return detail::kind(
      "attention", 1, detail::field("heads", &Attention::heads, FieldRule::positive),
      detail::field("kv_heads", &Attention::kv_heads, FieldRule::positive),
      detail::field("head_dim", &Attention::head_dim, FieldRule::positive),
      detail::field("causal", &Attention::causal), detail::field("alibi", &Attention::alibi));
}

/// Keeps an element with probability 1 − p and divides it by 1 − p; does nothing in evaluation.
struct Dropout {
  double p = 0.0;
};
constexpr auto describe(detail::Kind<Dropout>) {
  return detail::element_wise("dropout", 1, detail::field("p", &Dropout::p, FieldRule::fraction));
}

/// Averages the softmax cross-entropy over all targets of the global batch: logits {…, classes}
/// become {1}.
struct CrossEntropy {
  double label_smoothing = 0.0;
};
constexpr auto describe(detail::Kind<CrossEntropy>) {
  return detail::kind(
      "cross_entropy", 1,
      detail::field("label_smoothing", &CrossEntropy::label_smoothing, FieldRule::fraction));
}

using Attributes = std::variant<Input, Conv2d, Linear, BatchNorm, LayerNorm, RmsNorm, Relu, Gelu,
                                Silu, Tanh, Add, Multiply, Concat, MaxPool, AvgPool, GlobalAvgPool,
                                Flatten, ToSequence, Embedding, PositionEmbedding, TypeEmbedding,
                                ClassToken, TakeToken, Rotary, Attention, Dropout, CrossEntropy>;

/// The row of an attribute struct.
template <class Struct>
inline constexpr auto kind_row = describe(detail::Kind<Struct>{});

/// Calls `visit(field)` for every field of the struct, in the order of its row.
template <class Struct, class Visitor>
constexpr void for_each_field(Visitor&& visit) {
  std::apply([&](const auto&... fields) { (visit(fields), ...); }, kind_row<Struct>.fields);
}

/// Two structs of one kind are equal where the fields of their row are.
template <class Struct>
requires requires { describe(detail::Kind<Struct>{}); }
constexpr bool operator==(const Struct& a, const Struct& b) {
  bool equal = true;
  for_each_field<Struct>(
      [&](const auto& field) { equal = equal && a.*field.member == b.*field.member; });
  return equal;
}

/// Returns the name of a node's kind in files and reports ("conv2d", "layer_norm", …).
inline const char* kind_name(const Attributes& attributes) {
  return std::visit([](const auto& kind) { return kind_row<std::decay_t<decltype(kind)>>.name; },
                    attributes);
}

/// Tells if a node's kind works element by element.
inline bool is_element_wise(const Attributes& attributes) {
  return std::visit(
      [](const auto& kind) { return kind_row<std::decay_t<decltype(kind)>>.element_wise; },
      attributes);
}

}  // namespace heteroperf
