#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "workloads/node_attributes.hpp"

namespace heteroperf {

/// What a field accepts. `unused_at_default`: other fields may make it superfluous; it is left out
/// of files while it holds its default, and may not be negative.
enum class FieldRule { any, positive, not_negative, unused_at_default, fraction, above_zero };

/// One member of an attribute struct: its key in files and what it accepts.
template <class Struct, class Value>
struct Field {
  const char* key;
  Value Struct::*member;
  FieldRule rule;
};

/// The largest accepted extent or count in a graph.
inline constexpr std::int64_t largest_extent = std::int64_t{1} << 32;
/// As a number of inputs: two or any more.
inline constexpr int two_or_more = -2;

/// Names of the values of an enum field, in the order of the enum.
constexpr std::array<std::string_view, 2> value_names(InputKind) { return {"images", "tokens"}; }
constexpr std::array<std::string_view, 2> value_names(GeluForm) { return {"erf", "tanh"}; }

template <class Fields>
struct KindRow {
  const char* name;  ///< in files and reports
  int inputs;        ///< how many, or two_or_more
  Fields fields;     ///< in the order in which files hold them
};

namespace detail {

template <class Kind>
using Of = std::type_identity<Kind>;

template <class S, class V>
constexpr Field<S, V> field(const char* key, V S::*member, FieldRule rule = FieldRule::any) {
  return {key, member, rule};
}
template <class... F>
constexpr KindRow<std::tuple<F...>> kind(const char* name, int inputs, F... fields) {
  return {name, inputs, {fields...}};
}
template <class Pool>
constexpr auto pool(const char* name) {
  return kind(name, 1, field("kernel", &Pool::kernel, FieldRule::positive),
              field("stride", &Pool::stride, FieldRule::positive),
              field("padding", &Pool::padding, FieldRule::not_negative));
}

// The table. Adding a kind is one row here; what remains to say about it is its shapes
// (shape_inference.cpp), its counts and what it keeps for backward (graph_counts.cpp,
// graph_memory.cpp), and its operator in the engine.
using enum FieldRule;
constexpr auto row(Of<Input>) {
  return kind("input", 0, field("sample", &Input::kind),
              field("channels", &Input::channels, unused_at_default),
              field("height", &Input::height, unused_at_default),
              field("width", &Input::width, unused_at_default),
              field("length", &Input::length, unused_at_default));
}
constexpr auto row(Of<Conv2d>) {
  return kind("conv2d", 1, field("out_channels", &Conv2d::out_channels, positive),
              field("kernel", &Conv2d::kernel, positive),
              field("stride", &Conv2d::stride, positive),
              field("padding", &Conv2d::padding, not_negative),
              field("groups", &Conv2d::groups, positive), field("bias", &Conv2d::bias));
}
constexpr auto row(Of<Linear>) {
  return kind("linear", 1, field("out_features", &Linear::out_features, positive),
              field("bias", &Linear::bias), field("tied_to", &Linear::tied_to, unused_at_default));
}
constexpr auto row(Of<BatchNorm>) {
  return kind("batch_norm", 1, field("eps", &BatchNorm::eps, above_zero),
              field("momentum", &BatchNorm::momentum, fraction));
}
constexpr auto row(Of<LayerNorm>) {
  return kind("layer_norm", 1, field("eps", &LayerNorm::eps, above_zero),
              field("bias", &LayerNorm::bias));
}
constexpr auto row(Of<RmsNorm>) {
  return kind("rms_norm", 1, field("eps", &RmsNorm::eps, above_zero));
}
constexpr auto row(Of<Relu>) { return kind("relu", 1); }
constexpr auto row(Of<Gelu>) { return kind("gelu", 1, field("form", &Gelu::form)); }
constexpr auto row(Of<Silu>) { return kind("silu", 1); }
constexpr auto row(Of<Tanh>) { return kind("tanh", 1); }
constexpr auto row(Of<Add>) { return kind("add", two_or_more); }
constexpr auto row(Of<Multiply>) { return kind("multiply", 2); }
constexpr auto row(Of<Concat>) { return kind("concat", two_or_more); }
constexpr auto row(Of<MaxPool>) { return pool<MaxPool>("max_pool"); }
constexpr auto row(Of<AvgPool>) { return pool<AvgPool>("avg_pool"); }
constexpr auto row(Of<GlobalAvgPool>) { return kind("global_avg_pool", 1); }
constexpr auto row(Of<Flatten>) { return kind("flatten", 1); }
constexpr auto row(Of<ToSequence>) { return kind("to_sequence", 1); }
constexpr auto row(Of<Embedding>) {
  return kind("embedding", 1, field("vocabulary", &Embedding::vocabulary, positive),
              field("features", &Embedding::features, positive));
}
constexpr auto row(Of<PositionEmbedding>) {
  return kind("position_embedding", 1, field("positions", &PositionEmbedding::positions, positive));
}
constexpr auto row(Of<TypeEmbedding>) {
  return kind("type_embedding", 1, field("types", &TypeEmbedding::types, positive));
}
constexpr auto row(Of<ClassToken>) { return kind("class_token", 1); }
constexpr auto row(Of<TakeToken>) {
  return kind("take_token", 1, field("index", &TakeToken::index, not_negative));
}
constexpr auto row(Of<Rotary>) {
  return kind("rotary", 1, field("heads", &Rotary::heads, positive),
              field("kv_heads", &Rotary::kv_heads, positive),
              field("head_dim", &Rotary::head_dim, positive),
              field("base", &Rotary::base, above_zero));
}
constexpr auto row(Of<Attention>) {
  return kind("attention", 1, field("heads", &Attention::heads, positive),
              field("kv_heads", &Attention::kv_heads, positive),
              field("head_dim", &Attention::head_dim, positive),
              field("causal", &Attention::causal), field("alibi", &Attention::alibi));
}
constexpr auto row(Of<Dropout>) { return kind("dropout", 1, field("p", &Dropout::p, fraction)); }
constexpr auto row(Of<CrossEntropy>) {
  return kind("cross_entropy", 1,
              field("label_smoothing", &CrossEntropy::label_smoothing, fraction));
}

}  // namespace detail

template <class Kind>
inline constexpr auto kind_row = detail::row(detail::Of<Kind>{});

/// Calls `visit(field)` for every field of `Kind`, in the order of the table.
template <class Kind, class Visitor>
constexpr void for_each_field(Visitor&& visit) {
  std::apply([&](const auto&... fields) { (visit(fields), ...); }, kind_row<Kind>.fields);
}

}  // namespace heteroperf
