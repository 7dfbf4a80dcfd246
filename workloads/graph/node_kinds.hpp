#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>

#include "workloads/graph/sequence_part.hpp"

namespace heteroperf {

// The kinds of nodes of a model graph. A kind is a struct of typed attributes, and a row of the
// table below the structs: the name that files and reports use, the number of inputs, and the
// fields in the order in which files hold them. Reading, writing, checking and hashing a node
// follow from the row. Further rules of a kind (shapes, counts, kept tensors) stand in
// node_rules.cpp, its operator in the engine.
//
// In the comments below B is the batch and T a sequence length; shapes are those of one sample.

/// The values that a field accepts. A field of the rule `unused_at_default` may be superfluous
/// because of other fields: files leave it out while it holds its default. It is never negative.
/// One of the rule `absent_at_default` is neither in files nor hashed then, as if there were none.
enum class FieldRule {
  any,
  positive,
  not_negative,
  unused_at_default,
  absent_at_default,
  fraction,
  above_zero
};

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

enum class InputKind { images, tokens };
constexpr std::array<std::string_view, 2> value_names(InputKind) { return {"images", "tokens"}; }

/// A part of the sample: {channels, height, width} of an image, or {T} indices of tokens.
struct Input {
  InputKind kind = InputKind::images;
  std::int64_t channels = 0, height = 0, width = 0;  ///< images only
  std::int64_t length = 0;                           ///< tokens only
  /// 0: every sample has one. Else a sample has any number of them up to this, also none (the
  /// pictures of a text): then the batch of what is computed from them are all samples' items.
  std::int64_t items = 0;
  /// The least number of them that a sample has.
  std::int64_t fewest_items = 0;
};

/// Maps {Ci, H, W} to {Co, H', W'} by cross-correlation with zero padding.
struct Conv2d {
  std::int64_t out_channels = 0;
  std::array<std::int64_t, 2> kernel{1, 1}, stride{1, 1}, padding{0, 0};
  std::int64_t groups = 1;
  bool bias = false;
};

/// Maps {…, in} to {…, out} by y = x Wᵀ + b over the last dimension.
struct Linear {
  std::int64_t out_features = 0;
  bool bias = true;
  /// Names the embedding node whose weight is used in place of a weight of this node (a tied head).
  std::string tied_to;
};

/// Normalises {C, H, W} per channel, with statistics per micro-batch.
struct BatchNorm {
  double eps = 1e-5, momentum = 0.1;
};
/// Normalises over the last dimension.
struct LayerNorm {
  double eps = 1e-5;
  bool bias = true;
};
/// Computes x / sqrt(mean(x²) + eps) · w over the last dimension.
struct RmsNorm {
  double eps = 1e-5;
};

struct Relu {};
enum class GeluForm { erf, tanh };
constexpr std::array<std::string_view, 2> value_names(GeluForm) { return {"erf", "tanh"}; }
struct Gelu {
  GeluForm form = GeluForm::erf;
};
struct Silu {};
struct Tanh {};
/// Adds two or more inputs of equal shape element by element.
struct Add {};
/// Multiplies two inputs of equal shape element by element.
struct Multiply {};
/// Joins inputs along the first dimension of a sample (channels of images, rows of sequences).
struct Concat {};

struct MaxPool {
  std::array<std::int64_t, 2> kernel{2, 2}, stride{2, 2}, padding{0, 0};
};
/// Averages over windows. Padding with zeros does not count in the mean.
struct AvgPool {
  std::array<std::int64_t, 2> kernel{2, 2}, stride{2, 2}, padding{0, 0};
};
/// Averages {C, H, W} to {C}.
struct GlobalAvgPool {};
/// Turns any shape into {elements}.
struct Flatten {};
/// Turns {C, H, W} into {H·W, C}: the positions of an image become a sequence.
struct ToSequence {};

/// Maps {T} indices to {T, features} by looking up rows of a learned table.
struct Embedding {
  std::int64_t vocabulary = 0, features = 0;
};
/// Adds row t of a learned table of `positions` ≥ T rows to row t of {T, h}.
struct PositionEmbedding {
  std::int64_t positions = 0;
  /// The rows {T, h} have these positions. Neither in files nor hashed: only a rank's local graph
  /// has parts, here and below.
  SequencePart part = {};
  bool takes_part = false;  ///< the input has all positions, the output those of the part
};
/// Adds row 0 of a learned table of `types` rows to {T, h} (inputs have one segment).
struct TypeEmbedding {
  std::int64_t types = 2;
};
/// Puts a learned row in front: {T, h} becomes {T + 1, h}.
struct ClassToken {};
/// Takes row `index` of {T, h}; the output is {h}.
struct TakeToken {
  std::int64_t index = 0;
  SequencePart part = {};  ///< the input's; the rank with the first part gets the row
};
/// Takes the row of {T, h} at the first place where the second input, {T} tokens, holds `token`, or
/// the last row where none does (the end of a text): the output is {h}.
struct TokenPool {
  std::int64_t token = 0;
  SequencePart part = {};  ///< as in TakeToken
};
/// Puts rows into a sequence: {T, h}, its tokens {T}, and rows {P, h} of items. The places that
/// hold `token` take the rows of the sample's items in their order; the others keep their own. A
/// batch has as many such places as its items have rows.
struct InsertTokens {
  std::int64_t token = 0;
  SequencePart part = {};  ///< the rows of items are whole
};

/// Applies rotary positions to packed {T, (heads + 2 kv_heads) · head_dim}: it turns queries and
/// keys, and values pass. Pairs are (i, i + head_dim / 2), angles t · base^(−2i / head_dim).
struct Rotary {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double base = 10000.0;
  SequencePart part = {};
};
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
  /// The input has these positions; keys and values of the others come from other ranks.
  SequencePart part = {};
};

/// Computes the same for the queries {T, heads · head_dim} of one sequence over the keys and values
/// of another, packed as {S, 2 kv_heads · head_dim}, without a mask.
struct CrossAttention {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

/// Keeps an element with probability 1 − p and divides it by 1 − p; does nothing in evaluation.
struct Dropout {
  double p = 0.0;
};

// A loss is the last node of a graph; its output is {1}. One of a single input compares it with the
// targets that come with the samples, one of two inputs compares these.

/// Averages the softmax cross-entropy of logits {…, classes} over the global batch's targets that
/// count: negative ones do not.
struct CrossEntropy {
  double label_smoothing = 0.0;
};
/// Averages Σ (x − t)² over the features of {…, features} over the global batch's rows that count:
/// those whose targets are not NaN.
struct SquaredError {};

enum class ContrastOver { step, micro_batch };
constexpr std::array<std::string_view, 2> value_names(ContrastOver) {
  return {"step", "micro_batch"};
}
/// Tells the partner of each of two vectors {h} among those of all samples of a step or of a
/// micro-batch (InfoNCE, both ways: Radford et al., arXiv:2103.00020, figure 3). Similarities are
/// cosines times min(eˢ, 100), where s is learned and begins at −ln temperature.
struct Contrastive {
  ContrastOver over = ContrastOver::step;
  double temperature = 0.07;
};

using Attributes = std::variant<Input, Conv2d, Linear, BatchNorm, LayerNorm, RmsNorm, Relu, Gelu,
                                Silu, Tanh, Add, Multiply, Concat, MaxPool, AvgPool, GlobalAvgPool,
                                Flatten, ToSequence, Embedding, PositionEmbedding, TypeEmbedding,
                                ClassToken, TakeToken, TokenPool, InsertTokens, Rotary, Attention,
                                CrossAttention, Dropout, CrossEntropy, SquaredError, Contrastive>;

template <class Struct, class Fields>
struct KindRow {
  const char* name;
  int inputs;  ///< number of inputs, or two_or_more
  Fields fields;
  /// An element of the output depends on the elements at its place in the inputs alone, which all
  /// have one shape.
  bool element_wise = false;
  bool loss = false;
  int indices = -1;  ///< the number of the input that holds token indices, if one does
};

namespace detail {

using enum FieldRule;

template <class Struct, class Value>
constexpr Field<Struct, Value> field(const char* key, Value Struct::*member, FieldRule rule = any) {
  return {key, member, rule};
}
template <class Struct, class... Fields>
constexpr KindRow<Struct, std::tuple<Fields...>> kind(const char* name, int inputs,
                                                      Fields... fields) {
  return {name, inputs, {fields...}};
}
template <class Struct, class... Fields>
constexpr auto element_wise(const char* name, int inputs, Fields... fields) {
  auto row = kind<Struct>(name, inputs, fields...);
  row.element_wise = true;
  return row;
}
template <class Struct, class... Fields>
constexpr auto loss(const char* name, int inputs, Fields... fields) {
  auto row = kind<Struct>(name, inputs, fields...);
  row.loss = true;
  return row;
}
template <class Row>
constexpr Row takes_tokens(Row row, int input) {
  row.indices = input;
  return row;
}
template <class Pool>
constexpr auto pool(const char* name) {
  return kind<Pool>(name, 1, field("kernel", &Pool::kernel, positive),
                    field("stride", &Pool::stride, positive),
                    field("padding", &Pool::padding, not_negative));
}

/// A table of rows of different types, each of which is a base class.
template <class... Rows>
struct KindTable : Rows... {};
template <class... Rows>
KindTable(Rows...) -> KindTable<Rows...>;

inline constexpr KindTable kind_table{
    kind<Input>("input", 0, field("sample", &Input::kind),
                field("channels", &Input::channels, unused_at_default),
                field("height", &Input::height, unused_at_default),
                field("width", &Input::width, unused_at_default),
                field("length", &Input::length, unused_at_default),
                field("items", &Input::items, absent_at_default),
                field("fewest_items", &Input::fewest_items, absent_at_default)),
    kind<Conv2d>("conv2d", 1, field("out_channels", &Conv2d::out_channels, positive),
                 field("kernel", &Conv2d::kernel, positive),
                 field("stride", &Conv2d::stride, positive),
                 field("padding", &Conv2d::padding, not_negative),
                 field("groups", &Conv2d::groups, positive), field("bias", &Conv2d::bias)),
    kind<Linear>("linear", 1, field("out_features", &Linear::out_features, positive),
                 field("bias", &Linear::bias),
                 field("tied_to", &Linear::tied_to, unused_at_default)),
    kind<BatchNorm>("batch_norm", 1, field("eps", &BatchNorm::eps, above_zero),
                    field("momentum", &BatchNorm::momentum, fraction)),
    kind<LayerNorm>("layer_norm", 1, field("eps", &LayerNorm::eps, above_zero),
                    field("bias", &LayerNorm::bias)),
    kind<RmsNorm>("rms_norm", 1, field("eps", &RmsNorm::eps, above_zero)),
    element_wise<Relu>("relu", 1),
    element_wise<Gelu>("gelu", 1, field("form", &Gelu::form)),
    element_wise<Silu>("silu", 1),
    element_wise<Tanh>("tanh", 1),
    element_wise<Add>("add", two_or_more),
    element_wise<Multiply>("multiply", 2),
    kind<Concat>("concat", two_or_more),
    pool<MaxPool>("max_pool"),
    pool<AvgPool>("avg_pool"),
    kind<GlobalAvgPool>("global_avg_pool", 1),
    kind<Flatten>("flatten", 1),
    kind<ToSequence>("to_sequence", 1),
    takes_tokens(
        kind<Embedding>("embedding", 1, field("vocabulary", &Embedding::vocabulary, positive),
                        field("features", &Embedding::features, positive)),
        0),
    kind<PositionEmbedding>("position_embedding", 1,
                            field("positions", &PositionEmbedding::positions, positive)),
    kind<TypeEmbedding>("type_embedding", 1, field("types", &TypeEmbedding::types, positive)),
    kind<ClassToken>("class_token", 1),
    kind<TakeToken>("take_token", 1, field("index", &TakeToken::index, not_negative)),
    takes_tokens(kind<TokenPool>("token_pool", 2, field("token", &TokenPool::token, not_negative)),
                 1),
    takes_tokens(
        kind<InsertTokens>("insert_tokens", 3, field("token", &InsertTokens::token, not_negative)),
        1),
    kind<Rotary>("rotary", 1, field("heads", &Rotary::heads, positive),
                 field("kv_heads", &Rotary::kv_heads, positive),
                 field("head_dim", &Rotary::head_dim, positive),
                 field("base", &Rotary::base, above_zero)),
    kind<Attention>("attention", 1, field("heads", &Attention::heads, positive),
                    field("kv_heads", &Attention::kv_heads, positive),
                    field("head_dim", &Attention::head_dim, positive),
                    field("causal", &Attention::causal), field("alibi", &Attention::alibi)),
    kind<CrossAttention>("cross_attention", 2, field("heads", &CrossAttention::heads, positive),
                         field("kv_heads", &CrossAttention::kv_heads, positive),
                         field("head_dim", &CrossAttention::head_dim, positive)),
    element_wise<Dropout>("dropout", 1, field("p", &Dropout::p, fraction)),
    loss<CrossEntropy>("cross_entropy", 1,
                       field("label_smoothing", &CrossEntropy::label_smoothing, fraction)),
    loss<SquaredError>("squared_error", 1),
    loss<Contrastive>("contrastive", 2, field("over", &Contrastive::over),
                      field("temperature", &Contrastive::temperature, above_zero))};

/// Selects the row of a kind, the only base class that the parameter fits.
template <class Struct, class Fields>
constexpr const KindRow<Struct, Fields>& row_of_kind(const KindRow<Struct, Fields>& row) {
  return row;
}

}  // namespace detail

/// The row of an attribute struct.
template <class Struct>
inline constexpr auto kind_row = detail::row_of_kind<Struct>(detail::kind_table);

/// Calls `visit(field)` for every field of the struct, in the order of its row.
template <class Struct, class Visitor>
constexpr void for_each_field(Visitor&& visit) {
  std::apply([&](const auto&... fields) { (visit(fields), ...); }, kind_row<Struct>.fields);
}

/// Two structs of one kind are equal where the fields of their row are.
template <class Struct>
requires requires { detail::row_of_kind<Struct>(detail::kind_table); }
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

/// Tells if a node's kind is a loss.
inline bool is_loss(const Attributes& attributes) {
  return std::visit([](const auto& kind) { return kind_row<std::decay_t<decltype(kind)>>.loss; },
                    attributes);
}
/// Tells if a node's kind is a loss that compares its input with targets.
inline bool takes_targets(const Attributes& attributes) {
  return std::visit(
      [](const auto& kind) {
        constexpr auto& row = kind_row<std::decay_t<decltype(kind)>>;
        return row.loss && row.inputs == 1;
      },
      attributes);
}

/// The heads of an attention: of its queries, and of its keys and values.
struct AttentionHeads {
  std::int64_t heads = 0, kv_heads = 0;
  bool divide_by(std::int64_t degree) const {
    return heads % degree == 0 && kv_heads % degree == 0;
  }
  auto operator<=>(const AttentionHeads&) const = default;
};
/// Returns the heads of attention, to its own rows or to others; nothing for other kinds.
inline std::optional<AttentionHeads> attention_heads(const Attributes& attributes) {
  if (const auto* own = std::get_if<Attention>(&attributes)) return {{own->heads, own->kv_heads}};
  const auto* cross = std::get_if<CrossAttention>(&attributes);
  if (cross == nullptr) return std::nullopt;
  return {{cross->heads, cross->kv_heads}};
}
inline bool is_attention(const Attributes& attributes) {
  return attention_heads(attributes).has_value();
}

/// Tells if a node's kind works element by element.
inline bool is_element_wise(const Attributes& attributes) {
  return std::visit(
      [](const auto& kind) { return kind_row<std::decay_t<decltype(kind)>>.element_wise; },
      attributes);
}

}  // namespace heteroperf
