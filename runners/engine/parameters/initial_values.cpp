// Initial values are drawn by counter: element i of a parameter is a function of the seed, the
// node's name, the parameter's index and i. So every rank draws the part that it holds, in any
// order and with any number of threads, and all plans start from the same model.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <variant>
#include <vector>

#include "metrics/base/hash.hpp"
#include "metrics/base/random.hpp"
#include "runners/engine/parameters/parameter_store.hpp"

namespace heteroperf {
namespace {

constexpr double transformer_deviation = 0.02;

template <class Kind>
bool is(const Node& node) {
  return std::holds_alternative<Kind>(node.attributes);
}

/// Counts the attention nodes of a component, or of all.
std::int64_t attention_count(const ModelGraph& graph, const std::string* component = nullptr) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& node) {
    return is_attention(node.attributes) && (component == nullptr || node.branch == *component);
  });
}

/// Tells whether the model sees images beside texts.
bool sees_and_reads(const ModelGraph& graph) {
  const auto has = [&](InputKind kind) {
    return std::ranges::any_of(graph.inputs(), [&](NodeId id) {
      return std::get<Input>(graph.node(id).attributes).kind == kind;
    });
  };
  return has(InputKind::images) && has(InputKind::tokens);
}

/// A Kind takes the node's output, perhaps behind a dropout.
template <class Kind>
bool feeds(const ModelGraph& graph, NodeId node) {
  for (const NodeId consumer : graph.consumers(node)) {
    const Node& next = graph.node(consumer);
    if (is<Kind>(next)) return true;
    if (is<Dropout>(next) && feeds<Kind>(graph, consumer)) return true;
  }
  return false;
}

/// The rules are those of fill_initial_values().
double linear_deviation(const ModelGraph& graph, NodeId node, double fan_in) {
  if (attention_count(graph) == 0) {
    return feeds<Relu>(graph, node) ? std::sqrt(2.0 / fan_in) : std::sqrt(1.0 / (3.0 * fan_in));
  }
  const bool both = sees_and_reads(graph);
  const double deviation = both ? std::sqrt(1.0 / fan_in) : transformer_deviation;
  if (!feeds<Add>(graph, node)) return deviation;
  const std::int64_t layers = attention_count(graph, both ? &graph.node(node).branch : nullptr);
  return deviation / std::sqrt(2.0 * static_cast<double>(std::max<std::int64_t>(1, layers)));
}

/// Tells whether the rows of a node, followed back along first inputs, are patches of an image.
bool has_patches(const ModelGraph& graph, NodeId node) {
  if (is<ToSequence>(graph.node(node))) return true;
  const std::vector<NodeId>& inputs = graph.node(node).inputs;
  return !inputs.empty() && has_patches(graph, inputs[0]);
}

double table_deviation(const ModelGraph& graph, NodeId node) {
  if (!sees_and_reads(graph)) return transformer_deviation;
  if (is<PositionEmbedding>(graph.node(node)) && has_patches(graph, node)) return 1.0;
  return std::sqrt(1.0 / static_cast<double>(graph.node(node).output.back()));
}

double conv_deviation(const ModelGraph& graph, const Shape& shape) {
  const auto area = static_cast<double>(shape[2] * shape[3]);
  if (attention_count(graph) > 0) return std::sqrt(1.0 / (static_cast<double>(shape[1]) * area));
  return std::sqrt(2.0 / (static_cast<double>(shape[0]) * area));
}

// Box and Muller 1958: elements 2k and 2k + 1 come from the same pair of uniform numbers.
template <class T>
void fill_normal(std::uint64_t key, double deviation, T* values, std::int64_t first,
                 std::int64_t count) {
  for (std::int64_t i = first; i < first + count; ++i) {
    const std::uint64_t pair = static_cast<std::uint64_t>(i) / 2;
    const double radius_draw = 1.0 - to_unit(random_bits(key, 2 * pair));
    const double angle = 2.0 * std::numbers::pi * to_unit(random_bits(key, 2 * pair + 1));
    const double radius = deviation * std::sqrt(-2.0 * std::log(radius_draw));
    *values++ = static_cast<T>(radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
  }
}

/// Elements of a shard in the order of its own memory, as runs of consecutive elements of the full
/// parameter.
class ShardRuns {
 public:
  ShardRuns(const Shape& full, const ParameterShard& shard) {
    if (shard.whole()) {
      runs_ = {{0, element_count(full)}};
      return;
    }
    const auto dim = full.begin() + static_cast<std::ptrdiff_t>(shard.dim);
    const std::int64_t row = element_count(Shape(dim + 1, full.end()));
    full_period_ = *dim * row;
    for (const ParameterShard::Interval& part : shard.intervals) {
      runs_.push_back({part.first * row, part.count * row});
    }
  }

  /// visit(element of the full parameter, element of the shard, count) for [begin, end) of it.
  template <class Visit>
  void each(std::int64_t begin, std::int64_t end, Visit visit) const {
    std::int64_t period = 0;
    for (const Run& run : runs_) period += run.count;
    for (std::int64_t at = begin; at < end;) {
      std::int64_t inside = at % period;
      std::size_t r = 0;
      while (inside >= runs_[r].count) inside -= runs_[r++].count;
      const std::int64_t count = std::min(end - at, runs_[r].count - inside);
      visit(at / period * full_period_ + runs_[r].first + inside, at, count);
      at += count;
    }
  }

 private:
  struct Run {
    std::int64_t first, count;
  };
  std::vector<Run> runs_;  ///< for one index of the dimensions before the cut one
  std::int64_t full_period_ = 0;
};

/// A parameter's own stream of random numbers.
std::uint64_t parameter_key(std::uint64_t seed, const std::string& node, std::size_t index) {
  return random_bits(seed, Hash128("initial values").update(node).low(), index);
}

/// The distribution that one parameter is drawn from: a constant, or a normal distribution around 0
/// with the deviation `value`.
struct InitialRule {
  bool normal = false;
  double value = 0.0;
};

InitialRule initial_rule(const ModelGraph& graph, NodeId id, std::size_t index) {
  const Node& node = graph.node(id);
  const Parameter& parameter = node.parameters.at(index);
  if (parameter.name == "bias") return {false, 0.0};
  if (is<BatchNorm>(node) || is<LayerNorm>(node) || is<RmsNorm>(node)) {
    return {false, 1.0};
  }
  if (const auto* contrastive = std::get_if<Contrastive>(&node.attributes)) {
    return {false, -std::log(contrastive->temperature)};
  }
  if (is<Conv2d>(node)) return {true, conv_deviation(graph, parameter.shape)};
  if (is<Linear>(node)) {
    const auto fan_in = static_cast<double>(parameter.shape.back());
    return {true, linear_deviation(graph, id, fan_in)};
  }
  return {true, table_deviation(graph, id)};
}

}  // namespace

void fill_initial_values(const ModelGraph& graph, NodeId node, std::size_t index,
                         std::uint64_t seed, const at::Tensor& values,
                         const ParameterShard& shard) {
  const InitialRule rule = initial_rule(graph, node, index);
  const std::uint64_t key = parameter_key(seed, graph.node(node).name, index);
  const ShardRuns runs(graph.node(node).parameters.at(index).shape, shard);
  constexpr std::int64_t grain = 1 << 14;
  AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "fill_initial_values", [&] {
    auto* data = values.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, values.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      if (!rule.normal) {
        std::fill(data + begin, data + end, static_cast<scalar_t>(rule.value));
        return;
      }
      runs.each(begin, end, [&](std::int64_t full, std::int64_t local, std::int64_t count) {
        fill_normal(key, rule.value, data + local, full, count);
      });
    });
  });
}

}  // namespace heteroperf
