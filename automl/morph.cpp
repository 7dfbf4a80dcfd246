#include "automl/morph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "automl/graph_rebuild.hpp"
#include "metrics/base/error.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
// A *morph* makes a network deeper, wider or more connected. Three functions make one at a given
// place, two list the legal places, and random_morph() draws kind and place. Weights are not
// carried over: every trial starts anew, so a morph only has to give a valid graph.
namespace {

constexpr std::int64_t largest_skip_stride = 8;

template <class Kind>
bool is(const ModelGraph& graph, NodeId id) {
  return std::holds_alternative<Kind>(graph.node(id).attributes);
}

bool is_map(const Node& node) { return node.output.size() == 3; }

/// Returns a name that no node has yet, such as "deeper3": its number is one more than the largest
/// that an earlier morph of this kind has given.
std::string next_name(const ModelGraph& graph, std::string_view prefix) {
  std::uint64_t next = 1;
  for (const Node& node : graph.nodes()) {
    if (!node.name.starts_with(prefix)) continue;
    const std::string digits = node.name.substr(prefix.size(), 9);
    next = std::max<std::uint64_t>(next, std::strtoull(digits.c_str(), nullptr, 10) + 1);
  }
  return fmt::format("{}{}", prefix, next);
}

using Strides = std::array<std::int64_t, 2>;  // of y and x

/// Makes a square convolution that keeps the size of its map, up to the stride.
Conv2d convolution(std::int64_t width, std::int64_t kernel, Strides strides = {1, 1}) {
  Conv2d conv;
  conv.out_channels = width;
  conv.kernel = {kernel, kernel};
  conv.stride = strides;
  conv.padding = {kernel / 2, kernel / 2};
  return conv;
}

/// Adds the layers of a deeper morph; their names begin with `name`.

struct DeeperBlock {
  GraphRebuild& next;
  std::string name;
  std::int64_t width;

  /// Adds a 3×3 convolution and its batch norm.
  NodeId conv_bn(NodeId x, const char* number) {
    x = next.add(fmt::format("{}.conv{}", name, number), convolution(width, 3), {x});
    return next.add(fmt::format("{}.bn{}", name, number), BatchNorm{}, {x});
  }
  NodeId plain(NodeId x) { return next.add(name + ".relu", Relu{}, {conv_bn(x, "")}); }
  NodeId residual(NodeId x) {
    const NodeId inner = next.add(name + ".relu1", Relu{}, {conv_bn(x, "1")});
    const NodeId sum = next.add(name + ".add", Add{}, {conv_bn(inner, "2"), x});
    return next.add(name + ".relu2", Relu{}, {sum});
  }
};

/// Returns the stride of an unpadded 1×1 convolution that takes `from` positions to `to`; 0 without
/// such a stride.
std::int64_t stride_between(std::int64_t from, std::int64_t to) {
  for (std::int64_t stride = 1; stride <= largest_skip_stride; ++stride) {
    if ((from - 1) / stride + 1 == to) return stride;
  }
  return 0;
}

/// Returns the strides of the 1×1 convolution that leads from one map to another; nothing where
/// none fits.
std::optional<Strides> skip_strides(const Node& from, const Node& to) {
  const Strides strides{stride_between(from.output[1], to.output[1]),
                        stride_between(from.output[2], to.output[2])};
  return strides[0] == 0 || strides[1] == 0 ? std::nullopt : std::optional(strides);
}

/// Tells if `node` is the 1×1 convolution of `from`.
bool is_projection(const ModelGraph& graph, NodeId node, NodeId from) {
  const auto* conv = std::get_if<Conv2d>(&graph.node(node).attributes);
  return conv != nullptr && conv->kernel == std::array<std::int64_t, 2>{1, 1} &&
         graph.node(node).inputs[0] == from;
}

/// Tells if the sum at `node` gets `from`, directly or through a 1×1 convolution.
bool comes_from(const ModelGraph& graph, NodeId node, NodeId from) {
  if (node == from) return true;
  const auto& inputs = graph.node(node).inputs;
  if (is<BatchNorm>(graph, node)) return is_projection(graph, inputs[0], from);
  return is<Add>(graph, node) && std::any_of(inputs.begin(), inputs.end(), [&](NodeId input) {
           return comes_from(graph, input, from);
         });
}

/// Tells if the sum around `to` gets `from` already, so that a skip would repeat the path. It
/// follows the sums behind `to`, because what enters any of them takes part in the same sum.
bool has_skip(const ModelGraph& graph, NodeId from, NodeId to) {
  if (comes_from(graph, to, from)) return true;
  const std::vector<NodeId> consumers = graph.consumers(to);
  return std::any_of(consumers.begin(), consumers.end(), [&](NodeId consumer) {
    return is<Add>(graph, consumer) && has_skip(graph, from, consumer);
  });
}

/// Returns true where a skip may start: at a ReLU on a map.
bool may_start_skip(const ModelGraph& graph, NodeId id) {
  return is<Relu>(graph, id) && is_map(graph.node(id));
}

/// Returns true where a skip may end: at a batch norm or a sum on a map.
bool may_end_skip(const ModelGraph& graph, NodeId id) {
  return (is<BatchNorm>(graph, id) || is<Add>(graph, id)) && is_map(graph.node(id));
}

/// Returns the strides of a skip between two nodes of the longest path; nothing where it is
/// illegal.
std::optional<Strides> legal_skip(const ModelGraph& graph, NodeId from, NodeId to) {
  const bool ends_fit = from < to && may_start_skip(graph, from) && may_end_skip(graph, to);
  if (!ends_fit || has_skip(graph, from, to)) return std::nullopt;
  return skip_strides(graph.node(from), graph.node(to));
}

/// Lists widths between 1.5 and 2 times `width`, in steps that keep them multiples of a power of
/// two.
std::vector<std::int64_t> wider_widths(std::int64_t width, std::int64_t granularity,
                                       std::int64_t largest) {
  std::int64_t step = 1;
  while (step < 8 && step * 2 <= width / 2) step *= 2;
  step *= granularity;
  std::vector<std::int64_t> widths;
  const std::int64_t low = std::max((3 * width + 1) / 2, width + 1);
  for (std::int64_t w = (low + step - 1) / step * step; w <= std::min(2 * width, largest);
       w += step) {
    widths.push_back(w);
  }
  return widths;
}

template <class Item>
const Item& pick(const std::vector<Item>& items, RandomStream& random) {
  return items[random.below(items.size())];
}

/// Draws a place and a form for a deeper morph.
std::optional<Morphed> random_deeper(const ModelGraph& graph, const MorphLimits& limits,
                                     RandomStream& random) {
  const std::vector<NodeId> sites = deeper_sites(graph, limits);
  if (sites.empty()) return std::nullopt;
  const NodeId relu = pick(sites, random);
  return deepen(graph, relu, random.below(2) == 0 ? DeeperForm::plain : DeeperForm::residual);
}

/// Draws a channel class and a new width.
std::optional<Morphed> random_wider(const ModelGraph& graph, const MorphLimits& limits,
                                    RandomStream& random) {
  const std::vector<NodeId> sites = wider_sites(graph, limits);
  if (sites.empty()) return std::nullopt;
  const NodeId site = pick(sites, random);
  const ChannelClasses classes(graph);
  return widen(
      graph, site,
      pick(wider_widths(graph.node(site).output[0], classes.granularity(site), limits.max_width),
           random));
}

/// Draws by rejection, which is uniform over all legal places without listing them.
std::optional<Morphed> random_skip(const ModelGraph& graph, const MorphLimits&,
                                   RandomStream& random) {
  const std::vector<NodeId> chain = main_chain(graph);
  std::vector<NodeId> starts, ends;
  for (NodeId id : chain) {
    if (may_start_skip(graph, id)) starts.push_back(id);
    if (may_end_skip(graph, id)) ends.push_back(id);
  }
  if (starts.empty() || ends.empty()) return std::nullopt;
  constexpr int attempts = 16;
  for (int i = 0; i < attempts; ++i) {
    const NodeId from = pick(starts, random), to = pick(ends, random);
    if (legal_skip(graph, from, to)) return add_skip(graph, from, to);
  }
  return std::nullopt;
}

}  // namespace

Morphed deepen(const ModelGraph& graph, NodeId relu, DeeperForm form) {
  const Node& target = graph.node(relu);
  HETEROPERF_EXPECT(may_start_skip(graph, relu));
  GraphRebuild next(graph);
  DeeperBlock block{next, next_name(graph, "deeper"), target.output[0]};
  for (NodeId id : node_ids(graph)) {
    const NodeId now = next.copy(id);
    if (id != relu) continue;
    next.replace(id, form == DeeperForm::plain ? block.plain(now) : block.residual(now));
  }
  std::string text = fmt::format("{} after {}{}", block.name, target.name,
                                 form == DeeperForm::residual ? " (residual)" : "");
  return {std::move(next).finish(), std::move(text)};
}

Morphed widen(const ModelGraph& graph, NodeId member, std::int64_t width) {
  const ChannelClasses classes(graph);
  const std::int64_t before = graph.node(member).output.at(0);
  HETEROPERF_EXPECT(classes.may_widen(member));
  HETEROPERF_EXPECT(width > before && width % classes.granularity(member) == 0);
  const auto& producers = classes.producers(member);
  GraphRebuild next(graph);
  for (NodeId id : node_ids(graph)) {
    Attributes attributes = graph.node(id).attributes;
    if (std::find(producers.begin(), producers.end(), id) != producers.end()) {
      if (auto* linear = std::get_if<Linear>(&attributes)) linear->out_features = width;
      if (auto* conv = std::get_if<Conv2d>(&attributes)) {
        if (is_depthwise(graph, id)) conv->groups = width;
        conv->out_channels = width;
      }
    }
    next.copy(id, std::move(attributes));
  }
  std::string text = fmt::format("wider {} {}→{}", graph.node(producers[0]).name, before, width);
  if (producers.size() > 1) text += fmt::format(" (with {} more)", producers.size() - 1);
  return {std::move(next).finish(), std::move(text)};
}

Morphed add_skip(const ModelGraph& graph, NodeId from, NodeId to) {
  const Node &source = graph.node(from), &target = graph.node(to);
  const std::optional<Strides> strides = legal_skip(graph, from, to);
  const std::vector<NodeId> chain = main_chain(graph);
  HETEROPERF_EXPECT(strides && std::count(chain.begin(), chain.end(), from) == 1 &&
                    std::count(chain.begin(), chain.end(), to) == 1);
  const bool projected = source.output != target.output;
  GraphRebuild next(graph);
  const std::string name = next_name(graph, "skip");
  for (NodeId id : node_ids(graph)) {
    const NodeId now = next.copy(id);
    if (id != to) continue;
    NodeId shortcut = next.now(from);
    if (projected) {
      shortcut = next.add(name + ".conv", convolution(target.output[0], 1, *strides), {shortcut});
      shortcut = next.add(name + ".bn", BatchNorm{}, {shortcut});
    }
    next.replace(id, next.add(name + ".add", Add{}, {now, shortcut}));
  }
  std::string text = fmt::format("{} {} → {}", name, source.name, target.name);
  if (projected) text += fmt::format(" (1×1, stride {})", strides->front());
  return {std::move(next).finish(), std::move(text)};
}

std::vector<NodeId> deeper_sites(const ModelGraph& graph, const MorphLimits& limits) {
  std::vector<NodeId> sites;
  for (NodeId id : main_chain(graph)) {
    if (!may_start_skip(graph, id)) continue;
    const Shape& map = graph.node(id).output;
    if (std::min(map[1], map[2]) >= limits.min_spatial_size) sites.push_back(id);
  }
  return sites;
}

std::vector<NodeId> wider_sites(const ModelGraph& graph, const MorphLimits& limits) {
  const ChannelClasses classes(graph);
  std::vector<NodeId> sites;
  for (NodeId id : node_ids(graph)) {
    if (!classes.may_widen(id) || classes.producers(id).front() != id) continue;
    const auto widths =
        wider_widths(graph.node(id).output[0], classes.granularity(id), limits.max_width);
    if (!widths.empty()) sites.push_back(id);
  }
  return sites;
}

bool within_limits(const ModelGraph& graph, const MorphLimits& limits) {
  std::uint64_t layers = 0;
  const NodeId classifier = graph.node(graph.loss()).inputs[0];
  for (NodeId id : node_ids(graph)) {
    if (!is<Conv2d>(graph, id) && !is<Linear>(graph, id)) continue;
    ++layers;
    if (id != classifier && graph.node(id).output[0] > limits.max_width) return false;
  }
  return layers <= limits.max_layers && graph.parameter_count() <= limits.max_parameters &&
         strict_train_ops(graph, 1) <= limits.max_ops_per_sample;
}

std::optional<Morphed> random_morph(const ModelGraph& graph, const MorphLimits& limits,
                                    RandomStream& random) {
  using Draw = std::optional<Morphed> (*)(const ModelGraph&, const MorphLimits&, RandomStream&);
  static constexpr Draw draws[] = {random_deeper, random_wider, random_skip};
  constexpr int attempts = 8;
  for (int i = 0; i < attempts; ++i) {
    std::optional<Morphed> morphed = draws[random.below(3)](graph, limits, random);
    if (morphed && within_limits(morphed->graph, limits)) return morphed;
  }
  return std::nullopt;
}

}  // namespace heteroperf
