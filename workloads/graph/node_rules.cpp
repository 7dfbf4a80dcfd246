#include "workloads/graph/node_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"

// Three rules of every kind of node stand here, each a visitor with one overload per kind that
// needs it: the shapes that the node infers, the operator that is counted for it, and the tensors
// that it keeps for backward. A new kind needs a shape rule; the other two have defaults.

namespace heteroperf {
namespace {

/// Tells if a kind is among those that a rule names.
template <class Kind, class... Kinds>
constexpr bool is_among = (std::is_same_v<Kind, Kinds> || ...);

/// Tells if a number fits the rule of its field.
bool obeys(std::int64_t value, FieldRule rule) {
  const std::int64_t smallest = rule == FieldRule::positive ? 1 : 0;
  return value >= smallest && value <= largest_extent;
}

bool obeys(double value, FieldRule rule) {
  if (rule == FieldRule::fraction) return value >= 0.0 && value < 1.0;
  return value > 0.0 && value <= 1e30;
}

/// Says in words what a rule demands.
std::string demand(FieldRule rule) {
  switch (rule) {
    case FieldRule::positive:
      return fmt::format("must be in 1..{}", largest_extent);
    case FieldRule::fraction:
      return "must be at least 0 and below 1";
    case FieldRule::above_zero:
      return "must be above 0 and finite";
    default:
      return fmt::format("must be in 0..{}", largest_extent);
  }
}

/// Infers the shapes of each kind. It collects all problems and throws them together at the end.
class ShapeRules {
 public:
  ShapeRules(std::string subject, const std::vector<const Node*>& inputs, const ModelGraph& graph)
      : subject_(std::move(subject)), inputs_(inputs), graph_(graph) {}

  template <class Kind>
  InferredShapes infer(const Kind& attributes) {
    check_values(attributes);
    check_inputs(kind_row<Kind>.inputs, kind_row<Kind>.indices);
    InferredShapes shapes;
    if (problems_.empty() && has_rank_of<Kind>()) shapes = (*this)(attributes);
    if (problems_.empty()) check_size(shapes);
    if (!inputs_.empty()) shapes.items = inputs_[0]->items;
    check_items(kind_row<Kind>.loss, std::is_same_v<Kind, InsertTokens>);
    problems_.throw_if_any();
    return shapes;
  }

 private:
  void fail(const std::string& problem, std::string why = {}, std::string suggestion = {}) {
    problems_.add(subject_ + ": " + problem, std::move(why), std::move(suggestion));
  }

  template <class Kind>
  void check_values(const Kind& attributes) {
    for_each_field<Kind>(
        [&](const auto& field) { check_value(field.key, attributes.*field.member, field.rule); });
  }

  template <class Value>
  void check_value(const char* key, const Value& value, FieldRule rule) {
    if constexpr (std::is_same_v<Value, double> || std::is_same_v<Value, std::int64_t>) {
      if (!obeys(value, rule)) fail(fmt::format("{} is {}", key, value), demand(rule));
    } else if constexpr (std::is_same_v<Value, std::array<std::int64_t, 2>>) {
      if (!obeys(value[0], rule) || !obeys(value[1], rule)) {
        fail(fmt::format("{} is {}x{}", key, value[0], value[1]), "each " + demand(rule));
      }
    }
  }

  /// Notes inputs that count different things, and a loss over items.
  void check_items(bool loss, bool last_may_differ) {
    const auto counted = [&](const Node& input) {
      return input.items ? fmt::format("the items of '{}'", graph_.node(*input.items).name)
                         : std::string("samples");
    };
    const std::size_t alike = inputs_.size() - (last_may_differ && !inputs_.empty() ? 1 : 0);
    for (std::size_t i = 1; i < alike; ++i) {
      if (inputs_[i]->items == inputs_[0]->items) continue;
      fail(fmt::format("its inputs '{}' and '{}' do not go together", inputs_[0]->name,
                       inputs_[i]->name),
           fmt::format("one is computed for {}, the other for {}", counted(*inputs_[0]),
                       counted(*inputs_[i])),
           "Put the items into the samples' sequences by insert_tokens.");
    }
    if (loss && !inputs_.empty() && inputs_[0]->items) {
      fail(fmt::format("its input '{}' is computed for {}", inputs_[0]->name, counted(*inputs_[0])),
           "a loss is over samples");
    }
  }

  /// Notes a wrong number of inputs.
  void check_inputs(int expected, int indices) {
    const auto count = static_cast<int>(inputs_.size());
    if (expected == two_or_more ? count < 2 : count != expected) {
      const std::string wanted = expected == two_or_more ? "two or more" : std::to_string(expected);
      fail(fmt::format("has {} inputs", count), "takes " + wanted);
    }
    for (int i = 0; i < count; ++i) {
      check_meaning(*inputs_[static_cast<std::size_t>(i)], i == indices);
    }
  }

  /// Notes token indices where features are needed, the other way round, and a consumer of the
  /// loss.
  void check_meaning(const Node& input, bool takes_indices) {
    const auto* sample = std::get_if<Input>(&input.attributes);
    const bool indices = sample != nullptr && sample->kind == InputKind::tokens;
    if (indices && !takes_indices) {
      fail(fmt::format("its input '{}' holds token indices", input.name), "it works on features",
           "Put an embedding between them.");
    }
    if (!indices && takes_indices) {
      fail(fmt::format("its input '{}' holds features", input.name),
           "it takes token indices there, from an input of kind tokens");
    }
    if (is_loss(input.attributes)) {
      fail(fmt::format("its input '{}' is the loss", input.name), "nothing follows the loss");
    }
  }

  /// Bounds products of extents, which must stay exact in 64 bits.
  void check_size(const InferredShapes& shapes) {
    const auto too_large = [](const Shape& shape) {
      std::int64_t product = 1;
      return std::any_of(shape.begin(), shape.end(), [&](std::int64_t extent) {
        return extent > largest_extent || __builtin_mul_overflow(product, extent, &product) ||
               product > (std::int64_t{1} << 48);
      });
    };
    if (too_large(shapes.output)) {
      fail("the output " + to_string(shapes.output) + " is too large", "at most 2^48 elements");
    }
    for (const Parameter& parameter : shapes.parameters) {
      if (!too_large(parameter.shape)) continue;
      fail("the " + parameter.name + " " + to_string(parameter.shape) + " is too large",
           "at most 2^48 elements");
    }
  }

  const Shape& in(std::size_t i = 0) const { return inputs_[i]->output; }

  /// Returns true when the first input has this many dimensions; else notes what they should be.
  bool has_rank(std::size_t rank, const char* meaning) {
    if (in().size() == rank) return true;
    fail(fmt::format("its input '{}' has shape {}", inputs_[0]->name, to_string(in())),
         fmt::format("expected {}", meaning));
    return false;
  }
  bool is_sequence() { return has_rank(2, "{length, features}"); }

  /// Checks the input's dimensions for the kinds that take only images, or only sequences.
  template <class Kind>
  bool has_rank_of() {
    if (is_among<Kind, Conv2d, BatchNorm, MaxPool, AvgPool, GlobalAvgPool, ToSequence>) {
      return has_rank(3, "{channels, height, width}");
    }
    return !is_among<Kind, PositionEmbedding, TypeEmbedding, ClassToken, TakeToken, TokenPool,
                     InsertTokens, CrossAttention> ||
           is_sequence();
  }

  InferredShapes operator()(const Input& a) {
    if (a.fewest_items > a.items) {
      fail(fmt::format("fewest_items is {}", a.fewest_items),
           fmt::format("there are at most {}", a.items));
    }
    if (a.kind == InputKind::tokens) {
      if (a.length < 1) fail(fmt::format("length is {}", a.length), "token inputs need at least 1");
      if (a.channels != 0 || a.height != 0 || a.width != 0) {
        fail("has channels, height or width", "token inputs have only a length");
      }
      return {{a.length}, {}};
    }
    if (a.channels < 1 || a.height < 1 || a.width < 1) {
      fail(fmt::format("image extents are {}x{}x{}", a.channels, a.height, a.width),
           "channels, height and width must be at least 1");
    }
    if (a.length != 0) fail("has a length", "image inputs have channels, height and width");
    return {{a.channels, a.height, a.width}, {}};
  }

  /// Returns the map of the positions of a window; fails where it exceeds the padded extent.
  template <class Window>
  Shape positions(std::int64_t channels, const Window& a) {
    Shape map{channels};
    for (std::size_t axis : {0, 1}) {
      const std::int64_t room = in()[axis + 1] + 2 * a.padding[axis] - a.kernel[axis];
      map.push_back(room / a.stride[axis] + 1);
      if (room >= 0) continue;
      fail(fmt::format("the kernel {}x{} is larger than its input {} with padding {}x{}",
                       a.kernel[0], a.kernel[1], to_string(in()), a.padding[0], a.padding[1]),
           {}, "Use a larger image, a smaller kernel or fewer strides before it.");
    }
    return map;
  }

  InferredShapes operator()(const Conv2d& a) {
    const std::int64_t channels = in()[0];
    if (channels % a.groups != 0 || a.out_channels % a.groups != 0) {
      fail(fmt::format("groups {} does not divide its channels {} -> {}", a.groups, channels,
                       a.out_channels));
    }
    if (!problems_.empty()) return {};
    InferredShapes shapes{
        positions(a.out_channels, a),
        {{"weight", {a.out_channels, channels / a.groups, a.kernel[0], a.kernel[1]}}}};
    if (a.bias) shapes.parameters.push_back({"bias", {a.out_channels}});
    return shapes;
  }

  InferredShapes operator()(const Linear& a) {
    InferredShapes shapes;
    shapes.output = in();
    shapes.output.back() = a.out_features;
    if (a.tied_to.empty()) {
      shapes.parameters.push_back({"weight", {a.out_features, in().back()}});
    } else {
      check_tie(a);
    }
    if (a.bias) shapes.parameters.push_back({"bias", {a.out_features}});
    return shapes;
  }

  /// Notes a tied weight whose embedding is missing or has another shape.
  void check_tie(const Linear& a) {
    const auto& nodes = graph_.nodes();
    const auto tied = std::find_if(nodes.begin(), nodes.end(),
                                   [&](const Node& node) { return node.name == a.tied_to; });
    if (tied == nodes.end()) {
      fail(fmt::format("tied_to names '{}'", a.tied_to), "no earlier node has this name",
           suggest_name(a.tied_to, names_of(nodes)));
      return;
    }
    const auto* table = std::get_if<Embedding>(&tied->attributes);
    if (table == nullptr) {
      fail(fmt::format("tied_to names '{}'", a.tied_to), "which is not an embedding");
    } else if (table->vocabulary != a.out_features || table->features != in().back()) {
      fail(fmt::format("its weight {{{}, {}}} is tied to '{}' of {{{}, {}}}", a.out_features,
                       in().back(), a.tied_to, table->vocabulary, table->features),
           "tied weights have equal shapes");
    }
  }

  InferredShapes operator()(const BatchNorm&) {
    return {in(), {{"weight", {in()[0]}}, {"bias", {in()[0]}}}};
  }
  InferredShapes operator()(const LayerNorm& a) {
    InferredShapes shapes{in(), {{"weight", {in().back()}}}};
    if (a.bias) shapes.parameters.push_back({"bias", {in().back()}});
    return shapes;
  }
  InferredShapes operator()(const RmsNorm&) { return {in(), {{"weight", {in().back()}}}}; }

  /// The rule of element-wise operators: all inputs have one shape, which is the output's too.
  template <class Kind>
  requires(kind_row<Kind>.element_wise) InferredShapes operator()(const Kind&) {
    for (const Node* input : inputs_) {
      if (input->output == in()) continue;
      fail(fmt::format("its inputs '{}' {} and '{}' {} differ", inputs_[0]->name, to_string(in()),
                       input->name, to_string(input->output)),
           "their shapes must be equal");
    }
    return {in(), {}};
  }

  InferredShapes operator()(const Concat&) {
    Shape output = in();
    for (std::size_t i = 1; i < inputs_.size(); ++i) {
      const Shape& shape = in(i);
      if (shape.size() != in().size() ||
          !std::equal(shape.begin() + 1, shape.end(), in().begin() + 1)) {
        fail(fmt::format("its inputs '{}' {} and '{}' {} differ", inputs_[0]->name, to_string(in()),
                         inputs_[i]->name, to_string(shape)),
             "all dimensions but the first must be equal");
        return {};
      }
      output[0] += shape[0];
    }
    return {output, {}};
  }

  template <class Pool>
  InferredShapes pool(const Pool& a) {
    for (std::size_t axis : {0, 1}) {
      if (2 * a.padding[axis] <= a.kernel[axis]) continue;
      fail(fmt::format("padding {}x{} exceeds half of the kernel {}x{}", a.padding[0], a.padding[1],
                       a.kernel[0], a.kernel[1]),
           "a window would hold padding only");
      return {};
    }
    return {positions(in()[0], a), {}};
  }
  InferredShapes operator()(const MaxPool& a) { return pool(a); }
  InferredShapes operator()(const AvgPool& a) { return pool(a); }
  InferredShapes operator()(const GlobalAvgPool&) { return {{in()[0]}, {}}; }
  InferredShapes operator()(const Flatten&) { return {{element_count(in())}, {}}; }
  InferredShapes operator()(const ToSequence&) { return {{in()[1] * in()[2], in()[0]}, {}}; }

  InferredShapes operator()(const Embedding& a) {
    return {{in()[0], a.features}, {{"weight", {a.vocabulary, a.features}}}};
  }
  InferredShapes operator()(const PositionEmbedding& a) {
    if (a.positions < in()[0]) {
      fail(fmt::format("has {} positions for a sequence of {}", a.positions, in()[0]), {},
           "Shorten the sequence or enlarge the table.");
    }
    const std::int64_t rows = a.takes_part ? a.part.positions_of(a.part.index, in()[0]) : in()[0];
    return {{rows, in()[1]}, {{"weight", {a.positions, in()[1]}}}};
  }
  InferredShapes operator()(const TypeEmbedding& a) {
    return {in(), {{"weight", {a.types, in()[1]}}}};
  }
  InferredShapes operator()(const ClassToken&) {
    return {{in()[0] + 1, in()[1]}, {{"weight", {in()[1]}}}};
  }
  InferredShapes operator()(const TakeToken& a) {
    if (a.index >= a.part.whole_length(in()[0])) {
      fail(fmt::format("index is {}", a.index), fmt::format("the sequence has {} rows", in()[0]));
    }
    return {{in()[1]}, {}};
  }

  /// Checks that the input packs queries, keys and values as Rotary and Attention expect.
  template <class Heads>
  bool is_packed(const Heads& a) {
    if (!is_sequence()) return false;
    if (a.heads % a.kv_heads != 0) {
      fail(fmt::format("kv_heads {} does not divide heads {}", a.kv_heads, a.heads));
    }
    const auto width = (a.heads + 2 * a.kv_heads) * static_cast<double>(a.head_dim);
    if (width != static_cast<double>(in()[1])) {
      fail(fmt::format("its input '{}' has shape {}", inputs_[0]->name, to_string(in())),
           fmt::format("{} heads, {} kv_heads of {} are packed as (heads + 2 kv_heads) * head_dim",
                       a.heads, a.kv_heads, a.head_dim));
    }
    return problems_.empty();
  }
  InferredShapes operator()(const Rotary& a) {
    if (a.head_dim % 2 != 0)
      fail(fmt::format("head_dim is {}", a.head_dim), "pairs need an even one");
    is_packed(a);
    return {in(), {}};
  }
  InferredShapes operator()(const Attention& a) {
    if (!is_packed(a)) return {};
    return {{in()[0], a.heads * a.head_dim}, {}};
  }

  /// Notes tokens that are not one for every row of the sequence.
  void check_tokens() {
    if (in(1)[0] == in()[0]) return;
    fail(fmt::format("its input '{}' has {} tokens", inputs_[1]->name, in(1)[0]),
         fmt::format("the sequence '{}' has {} rows", inputs_[0]->name, in()[0]));
  }
  InferredShapes operator()(const TokenPool&) {
    check_tokens();
    return {{in()[1]}, {}};
  }
  InferredShapes operator()(const InsertTokens& a) {
    check_tokens();
    const Node& items = *inputs_[2];
    if (items.output.size() != 2 || items.output[1] != in()[1]) {
      fail(fmt::format("its input '{}' has shape {}", items.name, to_string(items.output)),
           fmt::format("expected rows of {} features", in()[1]));
      return {};
    }
    const bool ragged = items.items && items.items != inputs_[0]->items;
    const std::int64_t most =
        ragged ? std::get<Input>(graph_.node(*items.items).attributes).items : 1;
    if (most * items.output[0] > in()[0] * a.part.parts) {
      fail(fmt::format("{} items of {} rows do not fit", most, items.output[0]),
           fmt::format("the sequence '{}' has {} rows", inputs_[0]->name, in()[0]));
    }
    return {in(), {}};
  }

  InferredShapes operator()(const CrossAttention& a) {
    const Shape& others = in(1);
    if (a.heads % a.kv_heads != 0) {
      fail(fmt::format("kv_heads {} does not divide heads {}", a.kv_heads, a.heads));
    }
    const auto expect = [&](std::size_t input, std::int64_t heads, const char* packed) {
      const Shape& shape = in(input);
      const double width = static_cast<double>(heads) * static_cast<double>(a.head_dim);
      if (shape.size() == 2 && static_cast<double>(shape[1]) == width) return;
      fail(fmt::format("its input '{}' has shape {}", inputs_[input]->name, to_string(shape)),
           fmt::format("{} of {} are packed as {} * head_dim", packed, a.head_dim,
                       input == 0 ? "heads" : "2 kv_heads"));
    };
    expect(0, a.heads, "queries");
    expect(1, 2 * a.kv_heads, "keys and values");
    if (others.size() != 2) return {};
    return {in(), {}};
  }

  InferredShapes operator()(const CrossEntropy&) {
    if (in().size() > 2) has_rank(2, "{classes} or {length, classes}");
    return {{1}, {}};
  }
  InferredShapes operator()(const SquaredError&) {
    if (in().size() > 2) has_rank(2, "{features} or {length, features}");
    return {{1}, {}};
  }
  InferredShapes operator()(const Contrastive&) {
    if (!has_rank(1, "{features}")) return {};
    if (in(1) != in()) {
      fail(fmt::format("its inputs '{}' {} and '{}' {} differ", inputs_[0]->name, to_string(in()),
                       inputs_[1]->name, to_string(in(1))),
           "their shapes must be equal");
    }
    return {{1}, {{"scale", {1}}}};
  }

  std::string subject_;
  const std::vector<const Node*>& inputs_;
  const ModelGraph& graph_;
  ProblemList problems_;
};

std::uint64_t u(std::int64_t value) { return static_cast<std::uint64_t>(value); }

/// The shapes around a node: its first input (an input node has its output there) and its second,
/// and its output.
struct NodeShapes {
  const Shape& in;
  const Shape& second;
  const Shape& out;
  std::uint64_t contrasted;
  std::int64_t rows() const { return element_count(in) / in.back(); }
};

NodeShapes shapes_of(const ModelGraph& graph, const Node& node, std::uint64_t contrasted) {
  const auto input = [&](std::size_t i) -> const Shape& {
    return i < node.inputs.size() ? graph.node(node.inputs[i]).output : node.output;
  };
  return {input(0), input(1), node.output, contrasted};
}

/// Returns the operator shape of every kind of node; kinds without a rule count as `other`.
struct CountedShapes : NodeShapes {
  OperatorShape operator()(const Conv2d& a) const {
    const std::int64_t taps = a.kernel[0] * a.kernel[1] * out[1] * out[2];
    const std::int64_t inside = taps_inside(in[1], a.kernel[0], a.stride[0], a.padding[0]) *
                                taps_inside(in[2], a.kernel[1], a.stride[1], a.padding[1]);
    return Conv2dShape{u(in[0]),       u(a.out_channels), u(a.groups), u(a.kernel[0]),
                       u(a.kernel[1]), u(out[1]),         u(out[2]),   u(taps - inside)};
  }
  OperatorShape operator()(const Linear& a) const {
    return GemmShape{u(rows()), u(in.back()), u(a.out_features)};
  }
  OperatorShape operator()(const Attention& a) const {
    return AttentionShape{u(a.heads), u(a.head_dim), u(in[0]),
                          a.causal ? AttentionMask::causal : AttentionMask::full,
                          u(a.part.whole_length(in[0]))};
  }
  OperatorShape operator()(const CrossAttention& a) const {
    return AttentionShape{u(a.heads), u(a.head_dim), u(in[0]), AttentionMask::full, u(second[0])};
  }
  OperatorShape operator()(const Contrastive&) const { return ContrastShape{u(in[0]), contrasted}; }
  OperatorShape operator()(const MaxPool& a) const {
    return MaxPoolShape{u(element_count(in)), u(a.kernel[0] * a.kernel[1]),
                        u(a.stride[0] * a.stride[1])};
  }
  OperatorShape operator()(const GlobalAvgPool&) const {
    return GlobalPoolShape{u(in[0]), u(in[1] * in[2])};
  }
  OperatorShape operator()(const CrossEntropy&) const {
    if (in.size() != 1) return elementwise(ElementwiseKind::other);
    return SoftmaxShape{u(in[0])};
  }
  OperatorShape operator()(const BatchNorm&) const {
    return elementwise(ElementwiseKind::batch_norm);
  }
  OperatorShape operator()(const Relu&) const { return elementwise(ElementwiseKind::relu); }
  OperatorShape operator()(const Add&) const { return elementwise(ElementwiseKind::add); }
  template <class Kind>
  OperatorShape operator()(const Kind&) const {
    constexpr bool moves = is_among<Kind, Input, Concat, Flatten, Dropout, TokenPool, InsertTokens>;
    return elementwise(moves ? ElementwiseKind::moved : ElementwiseKind::other);
  }

  OperatorShape elementwise(ElementwiseKind kind) const {
    return ElementwiseShape{kind, u(element_count(out))};
  }
};

/// Returns the tensors that every kind keeps; kinds that no rule names keep nothing.
struct KeptBy : NodeShapes {
  // The statistics are the mean and the reciprocal deviation.
  KeptTensors operator()(const BatchNorm&) const {
    return {.inputs = true, .statistics_per_batch = 2 * in[0]};
  }
  KeptTensors operator()(const LayerNorm&) const {
    return {.inputs = true, .statistics_per_sample = 2 * rows()};
  }
  KeptTensors operator()(const RmsNorm&) const {
    return {.inputs = true, .statistics_per_sample = rows()};
  }
  KeptTensors operator()(const MaxPool&) const {
    return {.inputs = true, .indices_per_sample = element_count(out)};
  }
  // It keeps the logarithm of every row's sum, from which backward makes the scores again.
  KeptTensors operator()(const Attention& a) const {
    return {.inputs = true, .output = true, .statistics_per_sample = a.heads * in[0]};
  }
  KeptTensors operator()(const CrossAttention& a) const {
    return {.inputs = true, .output = true, .statistics_per_sample = a.heads * in[0]};
  }
  // The places in the sequence: one, or at most all.
  KeptTensors operator()(const TokenPool&) const { return {.indices_per_sample = 1}; }
  KeptTensors operator()(const InsertTokens&) const { return {.indices_per_sample = in[0]}; }
  KeptTensors operator()(const CrossEntropy&) const {
    return {.inputs = true, .indices_per_sample = rows()};
  }
  KeptTensors operator()(const SquaredError&) const {
    return {.statistics_per_sample = element_count(in)};
  }
  // The gradients of both vectors, and that of the scale.
  KeptTensors operator()(const Contrastive&) const {
    return {.statistics_per_sample = 2 * in[0], .statistics_per_batch = 1};
  }
  template <class Kind>
  KeptTensors operator()(const Kind&) const {
    return {.inputs = is_among<Kind, Conv2d, Linear, Multiply, Gelu, Silu, Embedding>,
            .output = is_among<Kind, Relu, Tanh>};
  }
};

}  // namespace

InferredShapes infer_shapes(const std::string& node_name, const Attributes& attributes,
                            const std::vector<const Node*>& inputs, const ModelGraph& graph) {
  ShapeRules rules(fmt::format("node '{}' ({})", node_name, kind_name(attributes)), inputs, graph);
  return std::visit([&](const auto& kind) { return rules.infer(kind); }, attributes);
}

std::int64_t taps_inside(std::int64_t image, std::int64_t kernel, std::int64_t stride,
                         std::int64_t padding) {
  std::int64_t inside = 0;
  for (std::int64_t first = -padding; first + kernel <= image + padding; first += stride) {
    const std::int64_t end = std::min(first + kernel, image);
    inside += std::max<std::int64_t>(0, end - std::max<std::int64_t>(first, 0));
  }
  return inside;
}

OperatorShape operator_shape(const ModelGraph& graph, const Node& node, std::uint64_t contrasted) {
  return std::visit(CountedShapes{shapes_of(graph, node, contrasted)}, node.attributes);
}

KeptTensors kept_tensors(const ModelGraph& graph, const Node& node) {
  KeptTensors kept = std::visit(KeptBy{shapes_of(graph, node, 1)}, node.attributes);
  // Their inputs serve the gradient of the weight alone.
  const bool for_weight = std::holds_alternative<Linear>(node.attributes) ||
                          std::holds_alternative<Embedding>(node.attributes);
  if (for_weight && !has_trained_weight(graph, node)) kept.inputs = false;
  return kept;
}

}  // namespace heteroperf
