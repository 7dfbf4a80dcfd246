// Which way is fastest for each product of a training? That depends on the processor, the shape and
// the layout, so nothing is taken for granted: every way multiplies matrices of the training's own
// shapes. All products and ways take turns, so that a disturbance meets all of them, and the
// fastest call of each counts.
//
// The shapes are those that the operators ask for. Each operator that multiplies is run forward and
// backward on empty tensors while products are only noted (ProductNotes), so no second description
// of what an operator multiplies can go wrong.
#include "runners/engine/probe/measure_operations.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>
#include <variant>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/operators/active_device.hpp"
#include "runners/engine/operators/convolution_ways.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/product.hpp"
#include "runners/engine/parameters/rank_share.hpp"

namespace heteroperf {
namespace {

// ---------------------------------------------------------------- shapes

/// Takes the gradients of an operator that runs for its notes alone.
class NoSink final : public GradientSink {
 public:
  explicit NoSink(bool wanted) : wanted_(wanted) {}
  bool wanted(std::size_t) const override { return wanted_; }
  at::Tensor reusable(std::size_t) override { return {}; }
  void put(std::size_t, at::Tensor) override {}
  void replace(std::size_t, at::Tensor) override {}

 private:
  bool wanted_;
};

at::Tensor samples_of(const Node& node, std::int64_t samples, at::ScalarType type) {
  Shape shape = node.output;
  shape.insert(shape.begin(), samples);
  return canonical(at::empty(shape, at::TensorOptions().dtype(type)));
}

/// Notes the products of one operator: its passes write what they like into empty tensors.
void note_operator(const ModelGraph& graph, NodeId id, std::int64_t samples, at::ScalarType type) {
  const Node& node = graph.node(id);
  const auto* linear = std::get_if<Linear>(&node.attributes);
  const Node& owner = linear != nullptr && !linear->tied_to.empty()
                          ? graph.node(graph.find(linear->tied_to))
                          : node;
  Tensors parameters, gradients, saved;
  // A tied linear takes the first parameter of the embedding and then its own.
  const auto take = [&](const Node& from, std::size_t index) {
    const auto options = at::TensorOptions().dtype(type);
    const at::MemoryFormat format = parameter_format(from, index);
    for (Tensors* tensors : {&parameters, &gradients}) {
      tensors->push_back(at::empty(from.parameters[index].shape, options).contiguous(format));
    }
  };
  if (&owner != &node) take(owner, 0);
  for (std::size_t i = 0; i < node.parameters.size(); ++i) take(node, i);
  const std::unique_ptr<Operator> op = make_operator(graph, id, type);
  const PassContext context;
  const Node& input = graph.node(node.inputs.front());
  NoSink sink(input.differentiable);
  op->forward({samples_of(input, samples, type)}, parameters, saved, context);
  const at::Tensor gradient = samples_of(node, samples, type);
  if (has_trained_weight(graph, node) || gradients.empty()) {
    op->backward(gradient, parameters, saved, context, sink, gradients);
  } else {
    op->input_gradient(gradient, parameters, saved, context, sink);
  }
}

/// Some of its products have a choice.
bool multiplies(const Node& node) {
  const auto* conv = std::get_if<Conv2d>(&node.attributes);
  return std::holds_alternative<Linear>(node.attributes) ||
         (conv != nullptr && conv->groups == 1) ||
         std::holds_alternative<Attention>(node.attributes);
}

/// Two nodes of equal operators and equal shapes make the same products.
using NodeForm = std::vector<std::int64_t>;
NodeForm form_of(const ModelGraph& graph, const Node& node, std::int64_t samples) {
  const Node& input = graph.node(node.inputs.front());
  NodeForm form{samples, static_cast<std::int64_t>(node.attributes.index()),
                input.differentiable ? 1 : 0, has_trained_weight(graph, node) ? 1 : 0};
  const auto add = [&](const Shape& shape) {
    form.push_back(static_cast<std::int64_t>(shape.size()));
    form.insert(form.end(), shape.begin(), shape.end());
  };
  add(input.output);
  add(node.output);
  if (const auto* conv = std::get_if<Conv2d>(&node.attributes)) {
    for (const auto& extents : {conv->kernel, conv->stride, conv->padding}) {
      form.insert(form.end(), extents.begin(), extents.end());
    }
  }
  if (const auto* attention = std::get_if<Attention>(&node.attributes)) {
    form.insert(form.end(), {attention->heads, attention->kv_heads, attention->causal ? 1 : 0});
  }
  return form;
}

void note_once(const ModelGraph& graph, NodeId id, std::int64_t samples, at::ScalarType type,
               std::set<NodeForm>& seen) {
  const Node& node = graph.node(id);
  // Attention on parts of sequences has one way.
  const auto* attention = std::get_if<Attention>(&node.attributes);
  if (attention != nullptr && !attention->part.whole()) return;
  if (!multiplies(node) || !seen.insert(form_of(graph, node, samples)).second) return;
  note_operator(graph, id, samples, type);
}

// ---------------------------------------------------------------- times

/// A product of the same kind with so many operations at most: the longest extents of matrices are
/// halved, and of images and sequences the batch. The rate of a product that is still large hardly
/// depends on them; but ours takes images of a batch together where they are small.
ProductShape short_product(ProductShape shape, double most_operations) {
  const std::int64_t least_batch = is_attention(shape.kind) ? 1 : 8;
  const bool has_batch = !is_of_matrices(shape.kind);
  while (shape.operations() > most_operations) {
    const auto end = shape.extents.begin() + (has_batch ? 1 : 3);
    std::int64_t& longest = *std::max_element(shape.extents.begin(), end);
    if (has_batch && longest <= least_batch) break;
    longest = (longest + 1) / 2;
  }
  return shape;
}

/// Memory that operands of all products take one after another, from its start again where it ends:
/// as in a training, they are seldom in a cache when their product comes.
class OperandMemory {
 public:
  explicit OperandMemory(double value)
      : numbers_(at::full({least_numbers}, value)), value_(value) {}

  at::Tensor take(at::IntArrayRef sizes) {
    const std::int64_t count = c10::multiply_integers(sizes);
    if (count > numbers_.numel()) {
      numbers_ = at::full({count}, value_);
      next_ = 0;
    }
    if (next_ + count > numbers_.numel()) next_ = 0;
    const at::Tensor taken = numbers_.narrow(0, next_, count).view(sizes);
    next_ += (count + line - 1) / line * line;
    return taken;
  }

 private:
  static constexpr std::int64_t least_numbers = std::int64_t{1}
                                                << 24;  // more than most caches hold
  static constexpr std::int64_t line = 16;              // of a cache

  at::Tensor numbers_;
  double value_;
  std::int64_t next_ = 0;
};

/// Results are kept apart, for sums of sums would soon be infinite.
struct Operands {
  OperandMemory inputs{0.5}, results{0};
};

at::Tensor operand(OperandMemory& memory, std::int64_t rows, std::int64_t columns,
                   bool transposed) {
  return transposed ? memory.take({columns, rows}).t() : memory.take({rows, columns});
}

/// A call of a product of this shape, on operands that it keeps.
using WayCall = std::function<void(ProductWay)>;
WayCall call_of_matrices(const ProductShape& shape, Operands& operands) {
  const auto [rows, inner, columns] =
      std::to_array({shape.extents[0], shape.extents[1], shape.extents[2]});
  const bool a_transposed = shape.kind == ProductKind::tn || shape.kind == ProductKind::tt;
  const bool b_transposed = shape.kind == ProductKind::nt || shape.kind == ProductKind::tt;
  return [a = operand(operands.inputs, rows, inner, a_transposed),
          b = operand(operands.inputs, inner, columns, b_transposed),
          out = operands.results.take({rows, columns})](ProductWay way) {
    product_by(way, out, a, b, Accumulation::overwrite);
  };
}

WayCall call_of_convolution(const ProductShape& shape, Operands& operands) {
  const auto& e = shape.extents;
  // Channels lie innermost, as canonical() has them.
  const auto images = [&](std::array<std::int64_t, 4> sizes, ProductKind writer) {
    OperandMemory& memory = shape.kind == writer ? operands.results : operands.inputs;
    return memory.take({sizes[0], sizes[2], sizes[3], sizes[1]}).permute({0, 3, 1, 2});
  };
  Convolution c{{.channels = e[1],
                 .in = {e[2], e[3]},
                 .kernel = {e[5], e[6]},
                 .stride = {e[7], e[8]},
                 .padding = {e[9], e[10]}}};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    Window& w = c.window;
    w.out[axis] = (w.in[axis] + 2 * w.padding[axis] - w.kernel[axis]) / w.stride[axis] + 1;
  }
  return [c, kind = shape.kind, x = images({e[0], e[1], e[2], e[3]}, ProductKind::conv_input),
          weight = images({e[4], e[1], e[5], e[6]}, ProductKind::conv_weight),
          dy = images({e[0], e[4], c.window.out[0], c.window.out[1]}, ProductKind::conv)](
             ProductWay way) {
    switch (kind) {
      case ProductKind::conv:
        c.forward(way, x, weight);
        break;
      case ProductKind::conv_input:
        c.input_gradient(way, dy, weight, x);
        break;
      default:
        c.weight_gradient(way, dy, x, weight, Accumulation::overwrite);
    }
  };
}

/// Attention forward and backward, by an operator whose products all take the way.
WayCall call_of_attention(const ProductShape& shape) {
  const auto& e = shape.extents;
  Attention attributes;
  attributes.heads = e[1];
  attributes.kv_heads = e[2];
  attributes.head_dim = e[4];
  attributes.causal = shape.kind == ProductKind::causal;
  // Attention asks nothing of where it stands. Slopes of ALiBi are not told apart.
  const ModelGraph nowhere;
  const Node node;
  const std::shared_ptr<Operator> op = make(attributes, {nowhere, node, at::kFloat});
  return [op, rows = at::full({e[0], e[3], (e[1] + 2 * e[2]) * e[4]}, 0.5),
          dy = at::full({e[0], e[3], e[1] * e[4]}, 0.5)](ProductWay way) {
    const ProductChoices choice(way);
    const ProductScope scope(&choice);
    const PassContext context;
    Tensors saved, none;
    NoSink sink(true);
    op->forward({rows}, none, saved, context);
    op->backward(dy, none, saved, context, sink, none);
  };
}

WayCall call_of(const ProductShape& shape, Operands& operands) {
  if (is_attention(shape.kind)) return call_of_attention(shape);
  return is_convolution(shape.kind) ? call_of_convolution(shape, operands)
                                    : call_of_matrices(shape, operands);
}

/// A product and the fastest calls of its ways so far.
class TimedProduct {
 public:
  TimedProduct(const ProductShape& shape, double most_operations, Operands& operands)
      : timed_(short_product(shape, most_operations)),
        scale_(shape.operations() / timed_.operations()),
        call_(call_of(timed_, operands)) {}

  /// One call of each way, the first one twice, since it may make kernels and ask for memory. A way
  /// that takes far longer than the fastest one gets no further turn; where its calls are short,
  /// only after its second turn, because all calls of one may have met a disturbance.
  void take_turn() {
    constexpr double hopeless = 1.5;
    constexpr double briefly_s = 0.01, short_s = 0.05;
    ++turn_;
    for (std::size_t w = 0; w < product_ways; ++w) {
      const auto way = static_cast<ProductWay>(w);
      if (!offers(timed_, way) || !has_product_way(way)) continue;
      const bool is_first = turn_ == 1;
      const bool may_be_disturbed = turn_ == 2 && seconds_[w] < short_s;
      if (!is_first && !may_be_disturbed && seconds_[w] > hopeless * fastest_) continue;
      const double called_s = seconds_of(way);
      seconds_[w] = is_first ? called_s : std::min(seconds_[w], called_s);
      if (is_first && called_s < std::max(briefly_s, 2 * hopeless * fastest_)) {
        seconds_[w] = std::min(called_s, seconds_of(way));
      }
      fastest_ = std::min(fastest_, seconds_[w]);
    }
  }

  /// As if the whole product were made at the rate of the one that is timed.
  ProductTimes seconds() const {
    ProductTimes whole = seconds_;
    for (double& way_s : whole) way_s *= scale_;
    return whole;
  }

 private:
  double seconds_of(ProductWay way) const {
    const double begin_s = monotonic_s();
    call_(way);
    return std::max(1e-9, monotonic_s() - begin_s);
  }

  ProductShape timed_;
  double scale_;
  WayCall call_;
  ProductTimes seconds_{};
  int turn_ = 0;
  double fastest_ = std::numeric_limits<double>::infinity();
};

/// A device that computes in float64 has one way to make a product.
bool has_ways() {
  return active_device().making(ProductOperator::product) == ActiveDevice::Making::native;
}

}  // namespace

std::set<ProductShape> products_of(const TrainingSpec& spec, RankId rank) {
  const at::ScalarType type = scalar_type(spec.precision);
  if (spec.gpu || type != at::kFloat || !has_ways()) return {};
  const RankMemory memory;
  use_threads(1);
  const MemoryScope charged(memory);
  const c10::InferenceMode no_tape;
  const RankShare share =
      rank_share(spec.graph, spec.ready->staged, spec.plan(), spec.ready->roles.at(rank.index()));
  ProductNotes notes;
  std::set<NodeForm> seen;
  for (const RankShare::Part& part : share.parts) {
    const ModelGraph& graph = share.shards[part.shard].graph;
    const auto& replicas = spec.plan().stages[part.role.stage].replicas;
    const std::int64_t samples = replicas[part.role.replica].micro_batch;
    for (const NodeId id : part.nodes) {
      note_once(graph, id, samples, type, seen);
    }
  }
  return notes.shapes();
}

ProductChoices fastest_products(const OperationProbe& probe, double seconds) {
  const at::ScalarType type = scalar_type(probe.precision);
  if (probe.gpu || type != at::kFloat || !has_ways()) return ProductChoices();
  std::vector<ProductShape> shapes;
  {
    const RankMemory memory;
    use_threads(1);
    const MemoryScope charged(memory);
    const c10::InferenceMode no_tape;
    const ProductNotes notes;
    std::set<NodeForm> seen;
    for (std::size_t i = 0; i < probe.graph.nodes().size(); ++i) {
      note_once(probe.graph, NodeId(i), probe.samples, type, seen);
    }
    const std::set<ProductShape> noted = notes.shapes();
    shapes.assign(noted.begin(), noted.end());
  }
  const std::vector<ProductTimes> times = time_products(shapes, probe.threads, seconds);
  std::vector<ProductChoice> choices;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    choices.push_back({shapes[i], faster_way(shapes[i], times[i])});
  }
  return ProductChoices(std::move(choices));
}

std::vector<ProductTimes> time_products(const std::vector<ProductShape>& shapes, int threads,
                                        double seconds) {
  const RankMemory memory;
  use_threads(threads);
  const MemoryScope charged(memory);
  const c10::InferenceMode no_tape;
  constexpr double usual_rate = 1e10;  // only the sizes that are timed follow from it
  constexpr double least_operations = 1e8;
  constexpr int least_turns = 2, most_turns = 50;
  const double end_s = monotonic_s() + seconds;
  const double most_operations =
      std::max(least_operations,
               usual_rate * seconds / static_cast<double>(std::max<std::size_t>(1, shapes.size())));
  Operands operands;
  std::vector<TimedProduct> products;
  for (const ProductShape& shape : shapes) products.emplace_back(shape, most_operations, operands);
  for (int turn = 0; turn < most_turns; ++turn) {
    if (turn >= least_turns && monotonic_s() >= end_s) break;
    for (TimedProduct& product : products) product.take_turn();
  }
  std::vector<ProductTimes> times;
  for (const TimedProduct& product : products) times.push_back(product.seconds());
  return times;
}

}  // namespace heteroperf
