// The calls with which operators are checked, and the numbers that go into them.
//
// A workload's graph gives its operators as they run, in chains, at its own extents. The corners
// are small graphs around one operator each: extents that fill no vector and no block, long sums,
// and operands that are zero, denormal, infinite or no numbers. Numbers are drawn by counter, so a
// seed stands for all of them.
#include "runners/engine/conformance/operator_cases.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <set>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/base/random.hpp"
#include "runners/engine/conformance/result_check.hpp"
#include "runners/engine/operators/kernel_launch.hpp"

namespace heteroperf {
namespace {

/// Normal numbers by Box and Muller, times `scale`, plus `middle`.
at::Tensor normal(at::IntArrayRef sizes, std::uint64_t seed, double scale = 1, double middle = 0) {
  const at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(at::kDouble));
  double* const values = tensor.data_ptr<double>();
  for (std::int64_t i = 0; i < tensor.numel(); i += 2) {
    const double radius = std::sqrt(-2 * std::log(1 - to_unit(random_bits(seed, i))));
    const double angle = 2 * std::numbers::pi * to_unit(random_bits(seed, i + 1));
    values[i] = middle + scale * radius * std::cos(angle);
    if (i + 1 < tensor.numel()) values[i + 1] = middle + scale * radius * std::sin(angle);
  }
  return tensor;
}

at::Tensor indices(at::IntArrayRef sizes, std::int64_t bound, std::uint64_t seed) {
  const at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(at::kLong));
  auto* const values = tensor.data_ptr<std::int64_t>();
  RandomStream draw(seed);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(bound)));
  }
  return tensor;
}

std::vector<std::int64_t> batched(std::int64_t samples, const Shape& shape) {
  std::vector<std::int64_t> sizes{samples};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return sizes;
}

/// Every 97th number, from one that the seed draws on, becomes `value`, and every second of those
/// its negative.
void sprinkle(const at::Tensor& tensor, double value, std::uint64_t seed) {
  constexpr std::int64_t distance = 97;
  double* const values = tensor.data_ptr<double>();
  const auto first = static_cast<std::int64_t>(
      random_bits(seed) %
      static_cast<std::uint64_t>(std::min(distance, std::max<std::int64_t>(1, tensor.numel()))));
  for (std::int64_t i = first; i < tensor.numel(); i += distance, value = -value) values[i] = value;
}

/// The same numbers with every second place in memory between them.
at::Tensor strided(const at::Tensor& tensor) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes.push_back(2);
  const at::Tensor wide = at::zeros(sizes, tensor.options());
  const at::Tensor view = wide.select(-1, 0);
  view.copy_(tensor);
  return view;
}

/// Numbers of a kind other than drawn ones take the place of those that are drawn, or stand among
/// them.
at::Tensor special(const at::Tensor& drawn, OperandValues operands, at::ScalarType type,
                   std::uint64_t seed) {
  switch (operands) {
    case OperandValues::drawn:
      break;
    case OperandValues::zero:
      return drawn.zero_();
    case OperandValues::denormal:
      return normal(drawn.sizes(), seed, smallest(type) / 16);
    case OperandValues::infinity:
      sprinkle(drawn, std::numeric_limits<double>::infinity(), seed);
      break;
    case OperandValues::not_a_number:
      sprinkle(drawn, std::numeric_limits<double>::quiet_NaN(), seed);
      break;
  }
  return drawn;
}

bool is_finite(OperandValues values) {
  return values != OperandValues::infinity && values != OperandValues::not_a_number;
}

/// Weights keep sums of order 1; those of norms lie around 1.
at::Tensor parameter(const Node& node, std::size_t index, std::uint64_t seed) {
  const Shape& shape = node.parameters[index].shape;
  const bool scales = std::holds_alternative<LayerNorm>(node.attributes) ||
                      std::holds_alternative<RmsNorm>(node.attributes) ||
                      std::holds_alternative<BatchNorm>(node.attributes);
  if (scales && index == 0) return normal(shape, seed, 0.2, 1);
  const double fan_in = shape.size() < 2 ? 1
                                         : static_cast<double>(element_count(shape)) /
                                               static_cast<double>(shape.front());
  const bool is_table = std::holds_alternative<Embedding>(node.attributes);
  return normal(shape, seed, is_table ? 1 : 1 / std::sqrt(fan_in));
}

// ---------------------------------------------------------------- small graphs

/// A graph around one operator, on images or on rows.
class Around {
 public:
  static Around images(std::int64_t channels, std::int64_t height, std::int64_t width) {
    Input input;
    input.channels = channels;
    input.height = height;
    input.width = width;
    return Around(input);
  }
  static Around tokens(std::int64_t length) {
    Input input;
    input.kind = InputKind::tokens;
    input.length = length;
    return Around(input);
  }
  /// Rows {length, width}.
  static Around rows(std::int64_t length, std::int64_t width) {
    Around around = tokens(length);
    around.put(Embedding{2, width});
    return around;
  }

  /// A second sequence beside what is there: rows {length, width} of samples, or of items.
  Around& beside(std::int64_t length, std::int64_t width, std::int64_t items = 0) {
    last_ = graph_->add("beside", Input{InputKind::tokens, 0, 0, 0, length, items}, {});
    return put(Embedding{2, width});
  }
  Around& put(Attributes kind, std::vector<NodeId> inputs = {}) {
    if (inputs.empty()) inputs = {last_};
    last_ = graph_->add(fmt::format("n{}", graph_->nodes().size()), std::move(kind), inputs);
    return *this;
  }
  NodeId last() const { return last_; }
  NodeId sample() const { return graph_->inputs().front(); }
  /// The operator is made of the last `count` nodes.
  OperatorCase operator()(std::int64_t samples, std::int32_t count = 1,
                          const OperandForm& operands = {}) const {
    OperatorCase one{graph_, {}, samples, operands};
    for (std::int32_t i = count - 1; i >= 0; --i) one.nodes.push_back(NodeId(last_.value() - i));
    return one;
  }

 private:
  explicit Around(const Input& input) : last_(graph_->add("sample", input, {})) {}

  std::shared_ptr<ModelGraph> graph_ = std::make_shared<ModelGraph>();
  NodeId last_;
};

Around with_two(Around around, const Attributes& first, const Attributes& second) {
  const NodeId x = around.last();
  around.put(first, {x});
  const NodeId a = around.last();
  around.put(second, {a, x});
  return around;
}

/// Pairs of vectors, each held against all of the batch.
Around contrast(std::int64_t width) {
  Around around = Around::rows(3, width);
  around.put(TakeToken{1});
  const NodeId first = around.last();
  around.beside(1, width).put(TakeToken{0});
  return around.put(Contrastive{ContrastOver::micro_batch, 0.5}, {first, around.last()});
}

void add_row_operators(std::vector<OperatorCase>& cases, std::int64_t width, std::int64_t samples,
                       const OperandForm& operands) {
  const auto rows = [&] { return Around::rows(3, width); };
  const auto add = [&](const Around& around, std::int32_t count = 1) {
    cases.push_back(around(samples, count, operands));
  };
  for (const Attributes& kind :
       {Attributes(LayerNorm{}), Attributes(RmsNorm{}), Attributes(Relu{}), Attributes(Gelu{}),
        Attributes(Gelu{GeluForm::tanh}), Attributes(Silu{}), Attributes(Tanh{}),
        Attributes(Dropout{0.2}), Attributes(TypeEmbedding{}), Attributes(ClassToken{}),
        Attributes(TakeToken{1})}) {
    add(rows().put(kind));
  }
  add(Around::tokens(3).put(Embedding{5, width}));
  add(rows().put(PositionEmbedding{5}), 2);
  add(rows().put(Relu{}).put(PositionEmbedding{5}));
  add(with_two(rows(), Relu{}, Multiply{}));
  add(with_two(rows(), Relu{}, Add{}));
  Around gated = rows();
  const NodeId up = gated.last();
  gated.put(Tanh{}).put(Silu{});
  gated.put(Multiply{}, {gated.last(), up});
  add(gated, 2);
  add(rows().put(Linear{width + 2, true, {}}));
  add(rows().put(Linear{width + 2, true, {}}).put(Gelu{}), 2);
  add(with_two(rows(), Linear{width, true, {}}, Add{}), 2);
  add(rows().put(CrossEntropy{width > 4 ? 0.1 : 0.0}));
  Around pooled = rows();
  add(pooled.put(TokenPool{1}, {pooled.last(), pooled.sample()}));
  Around joined = rows();
  const NodeId words = joined.last();
  joined.beside(1, width, 3);
  add(joined.put(InsertTokens{1}, {words, joined.sample(), joined.last()}));
  add(rows().put(SquaredError{}));
  // A vector of zeros, or of numbers whose squares are, has no direction.
  if (operands.values == OperandValues::drawn && width > 1) add(contrast(width));
}

void add_image_operators(std::vector<OperatorCase>& cases, std::int64_t channels,
                         std::int64_t extent, std::int64_t samples, const OperandForm& operands) {
  const auto images = [&] { return Around::images(channels, extent, extent + 1); };
  const auto add = [&](const Around& around, std::int32_t count = 1) {
    cases.push_back(around(samples, count, operands));
  };
  // What is not finite may be multiplied with the zeros of a padding or between strides, or not.
  const bool has_zeros =
      operands.values_of(OperandPlace::inputs) == operands.values || is_finite(operands.values);
  Conv2d conv;
  // Without bf16 instructions oneDNN makes NaN of an infinite last term of an odd number.
  const std::int64_t odd = is_finite(operands.values) ? 1 : 0;
  conv.out_channels = channels + 4 - odd;
  conv.kernel = {3, 3};
  if (has_zeros) conv.padding = {1, 1};
  conv.bias = true;
  add(images().put(conv));
  conv.stride = {2, 2};
  if (has_zeros) add(images().put(conv));
  Conv2d plain;
  plain.out_channels = 2 * channels + 2 - odd;
  add(images().put(plain));
  // LibTorch's grouped convolutions fill up blocks of channels, over which NaN spreads.
  if (operands.values == OperandValues::drawn) {
    Conv2d grouped = conv;
    grouped.groups = channels;
    grouped.out_channels = 2 * channels;
    add(images().put(grouped));
  }
  // A node without parameters stands before, so that there are gradients to pass on.
  const auto features = [&] { return images().put(plain); };
  // With factors that need no rounding.
  BatchNorm norm;
  norm.momentum = 0x1p-3;
  add(features().put(norm));
  add(features().put(norm).put(Relu{}), 2);
  add(features().put(MaxPool{{3, 3}, {2, 2}, {1, 1}}));
  add(features().put(MaxPool{}));
  add(features().put(AvgPool{}));
  add(features().put(GlobalAvgPool{}));
  add(features().put(Flatten{}));
  add(features().put(ToSequence{}));
  add(with_two(features(), Relu{}, Concat{}));
  Around residual = features();
  const NodeId x = residual.last();
  residual.put(norm);
  residual.put(Add{}, {residual.last(), x}).put(Relu{});
  add(residual, 3);
  Around joined = with_two(features(), Relu{}, Add{});
  joined.put(Relu{});
  add(joined, 2);
}

void add_attention(std::vector<OperatorCase>& cases, std::int64_t length, const Attention& kind,
                   std::int64_t samples, const OperandForm& operands = {}) {
  const std::int64_t width = (kind.heads + 2 * kind.kv_heads) * kind.head_dim;
  const auto rows = [&] { return Around::rows(length, width); };
  cases.push_back(rows().put(kind)(samples, 1, operands));
  if (!kind.causal && !kind.alibi) {
    Around crossed = Around::rows(length, kind.heads * kind.head_dim);
    const NodeId queries = crossed.last();
    crossed.beside(length + 3, 2 * kind.kv_heads * kind.head_dim);
    const CrossAttention cross{kind.heads, kind.kv_heads, kind.head_dim};
    cases.push_back(crossed.put(cross, {queries, crossed.last()})(samples, 1, operands));
  }
  if (kind.head_dim % 2 == 0) {
    const Rotary rotary{kind.heads, kind.kv_heads, kind.head_dim};
    cases.push_back(rows().put(rotary)(samples, 1, operands));
  }
}

/// Infinite queries and keys give scores that a softmax makes nothing of. The values are the last
/// `width` numbers of packed rows.
at::Tensor with_infinite_values(std::int64_t width, at::IntArrayRef sizes, at::ScalarType type,
                                std::uint64_t seed) {
  const at::Tensor packed = normal(sizes, seed, 1, 0.25);
  const std::int64_t first = sizes.back() - width;
  const at::Tensor values = packed.narrow(-1, first, sizes.back() - first);
  values.copy_(special(values.contiguous(), OperandValues::infinity, type, seed));
  return packed;
}

/// Returns how many numbers at the end of an input's rows are values of an attention; −1: the node
/// is none.
std::int64_t value_width(const Attributes& kind, std::size_t input) {
  if (const auto* a = std::get_if<Attention>(&kind)) return a->kv_heads * a->head_dim;
  const auto* cross = std::get_if<CrossAttention>(&kind);
  if (cross == nullptr) return -1;
  return input == 0 ? 0 : cross->kv_heads * cross->head_dim;
}

std::int64_t vocabulary_of(const ModelGraph& graph, NodeId tokens) {
  for (const NodeId user : graph.consumers(tokens)) {
    if (const auto* table = std::get_if<Embedding>(&graph.node(user).attributes)) {
      return table->vocabulary;
    }
  }
  HETEROPERF_EXPECT(!"tokens that no embedding looks up");
  return 1;
}

}  // namespace

std::string operator_name(const ModelGraph& graph, const std::vector<NodeId>& nodes) {
  std::string name;
  for (const NodeId node : nodes) {
    name += (name.empty() ? "" : "+") + std::string(kind_name(graph.node(node).attributes));
  }
  return name;
}

std::string case_text(const OperatorCase& one) {
  const Node& first = one.graph->node(one.nodes.front());
  const Node& last = one.graph->node(one.nodes.back());
  std::string text = fmt::format("{} {} -> {} x {}", operator_name(*one.graph, one.nodes),
                                 to_string(one.graph->node(first.inputs.front()).output),
                                 to_string(last.output), one.samples);
  const auto& [values, place, layout] = one.operands;
  if (values != OperandValues::drawn) {
    text += fmt::format(", {} in {}", to_string(values), to_string(place));
  }
  if (layout != OperandLayout::canonical) text += fmt::format(", {}", to_string(layout));
  return text;
}

std::vector<OperatorCase> cases_of(const std::shared_ptr<const ModelGraph>& graph,
                                   std::int64_t samples) {
  std::vector<OperatorCase> cases;
  std::set<std::string> seen;
  for (const FusedNodes& fused : fuse_nodes(*graph)) {
    OperatorCase one{graph, fused.nodes, samples};
    if (seen.insert(case_text(one)).second) cases.push_back(std::move(one));
  }
  return cases;
}

std::vector<OperatorCase> corner_cases(bool quick) {
  std::vector<OperatorCase> cases;
  OperandForm spread;
  spread.layout = OperandLayout::strided;
  for (const std::int64_t width : {1, 3, 17, 67}) {
    add_row_operators(cases, width, 5, width == 17 ? spread : OperandForm());
  }
  add_row_operators(cases, 255, 24, {});  // rows enough to tell a lean to one side
  // A norm's own errors are as large as that of its last rounding, whose lean takes more rows.
  for (const Attributes& norm : {Attributes(LayerNorm{}), Attributes(RmsNorm{})}) {
    cases.push_back(Around::rows(3, 255).put(norm)(96));
  }
  add_image_operators(cases, 1, 2, 3, {});
  add_image_operators(cases, 5, 7, 3, spread);
  add_image_operators(cases, 35, 9, 2, {});
  for (const OperandValues values : {OperandValues::zero, OperandValues::denormal,
                                     OperandValues::infinity, OperandValues::not_a_number}) {
    for (const OperandPlace place :
         {OperandPlace::inputs, OperandPlace::output_gradient, OperandPlace::parameters}) {
      const OperandForm form{values, place, OperandLayout::canonical};
      add_row_operators(cases, 18, 4, form);
      add_image_operators(cases, 6, 6, 2, form);
      if (place == OperandPlace::parameters) continue;
      // LibTorch's takes a row of NaN for one without keys, where these fill no vector.
      add_attention(cases, 16, {4, 2, 6, false, false}, 2, form);
      // A pair that a mask hides may be left out or multiplied with 0, which of NaN makes NaN.
      if (is_finite(values)) add_attention(cases, 16, {2, 2, 6, true, false}, 2, form);
    }
  }
  for (const bool causal : {true, false}) {
    add_attention(cases, 1, {1, 1, 2, causal, false}, 2);
    add_attention(cases, 37, {3, 3, 10, causal, false}, 2, spread);
    add_attention(cases, 131, {4, 2, 16, causal, false}, 1);
  }
  add_attention(cases, 33, {2, 2, 8, true, true}, 2);
  for (const std::int64_t terms : {1024, 4097, 16384}) {
    if (quick && terms > 4097) continue;
    const auto rows = [&] { return Around::rows(2, terms); };
    cases.push_back(rows().put(Linear{9, true, {}})(3));
    cases.push_back(rows().put(LayerNorm{})(3));
    cases.push_back(rows().put(RmsNorm{})(3));
    cases.push_back(rows().put(CrossEntropy{0.1})(3));
    // Long sums over rows: the gradients of the weights.
    cases.push_back(Around::rows(terms, 7).put(Linear{5, true, {}})(1));
    cases.push_back(Around::rows(terms, 7).put(LayerNorm{})(1));
    cases.push_back(Around::tokens(terms).put(Embedding{11, 6})(1));
  }
  return cases;
}

// A middle of its own lets norms lose what a mean cancels.
at::Tensor draw_operand(at::IntArrayRef sizes, OperandValues operands, at::ScalarType type,
                        std::uint64_t seed) {
  return special(normal(sizes, seed, 1, 0.25), operands, type, seed);
}

OperatorCall draw_call(const OperatorCase& one, const OperatorGroup& group, at::ScalarType type,
                       std::uint64_t seed) {
  const ModelGraph& graph = *one.graph;
  OperatorCall call{graph, group, {}, {}, {}, {}, {}};
  std::uint64_t salt = 0;
  const auto laid_out = [&](const at::Tensor& tensor) {
    const at::Tensor rounded = tensor.to(type);
    return one.operands.layout == OperandLayout::strided ? strided(rounded) : rounded;
  };
  for (std::size_t i = 0; i < group.inputs.size(); ++i) {
    const NodeId id = group.inputs[i];
    const auto first = std::ranges::find(group.inputs, id) - group.inputs.begin();
    if (first < static_cast<std::ptrdiff_t>(i)) {
      call.inputs.push_back(call.inputs[static_cast<std::size_t>(first)]);
      continue;
    }
    const Node& node = graph.node(id);
    const Attributes& kind = graph.node(group.nodes.front()).attributes;
    const auto* insert = std::get_if<InsertTokens>(&kind);
    // An item of one row for every place.
    const std::int64_t batch = node.items && insert != nullptr
                                   ? call.inputs.at(1).eq(insert->token).sum().item<std::int64_t>()
                                   : one.samples;
    const auto sizes = batched(batch, node.output);
    const auto* sample = std::get_if<Input>(&node.attributes);
    if (sample != nullptr && sample->kind == InputKind::tokens) {
      call.inputs.push_back(indices(sizes, vocabulary_of(graph, id), random_bits(seed, ++salt)));
      continue;
    }
    const OperandValues values = one.operands.values_of(OperandPlace::inputs);
    const std::uint64_t draw = random_bits(seed, ++salt);
    const std::int64_t width = value_width(kind, i);
    if (width >= 0 && values == OperandValues::infinity) {
      call.inputs.push_back(laid_out(with_infinite_values(width, sizes, type, draw)));
      continue;
    }
    call.inputs.push_back(laid_out(draw_operand(sizes, values, type, draw)));
  }
  for (const auto& [node, index] : group.parameters) {
    const std::uint64_t draw = random_bits(seed, ++salt);
    const at::Tensor values = special(parameter(graph.node(node), index, draw),
                                      one.operands.values_of(OperandPlace::parameters), type, draw);
    call.parameters.push_back(
        values.to(type).contiguous(parameter_format(graph.node(node), index)));
  }
  const Node& last = graph.node(group.nodes.back());
  if (takes_targets(last.attributes)) {
    const Shape& rows = graph.node(last.inputs.front()).output;
    std::vector<std::int64_t> sizes = batched(one.samples, rows);
    const std::uint64_t draw = random_bits(seed, ++salt);
    if (std::holds_alternative<SquaredError>(last.attributes)) {
      call.inputs.push_back(normal(sizes, draw).to(type));
    } else {
      sizes.pop_back();
      call.inputs.push_back(indices(sizes, rows.back(), draw));
    }
    call.output_gradient = at::ones({1}, at::TensorOptions().dtype(accumulation_type(type)));
    // The scale of the gradient, loss_scale / rows, is a number without rounding: a rounded factor
    // moves all results alike.
    call.context.loss_scale =
        static_cast<double>(one.samples * element_count(rows) / rows.back()) / 64;
  } else if (is_loss(last.attributes)) {
    call.output_gradient = at::ones({1}, at::TensorOptions().dtype(accumulation_type(type)));
  } else {
    const std::uint64_t draw = random_bits(seed, ++salt);
    call.output_gradient =
        laid_out(special(normal(batched(one.samples, last.output), draw),
                         one.operands.values_of(OperandPlace::output_gradient), type, draw));
  }
  for (const at::Tensor& buffer : group.op->buffers()) {
    call.buffers.push_back(
        normal(buffer.sizes(), random_bits(seed, ++salt), 0.2, 1).to(buffer.scalar_type()));
  }
  call.context.seed = seed;
  call.context.step = 3;
  call.context.first_sample = 5;
  call.context.node = group.nodes.back().value();
  return call;
}

}  // namespace heteroperf
