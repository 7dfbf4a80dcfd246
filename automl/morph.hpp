#pragma once

#include <optional>
#include <string>
#include <vector>

#include "metrics/base/random.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/search_space.hpp"

namespace heteroperf {

/// A network morphism of an image classifier: a new graph and the words for it. Every morph goes
/// through ModelGraph::add, so shapes are inferred and checked again. The names of existing nodes
/// stay; new nodes carry the next free number ("deeper3.conv"). An illegal place is a bug
/// (Error{internal}); the result is never invalid.
struct Morphed {
  ModelGraph graph;
  std::string text;  ///< "deeper3 after layer1.0.relu1", "wider layer1.0.conv1 64→128", …
};

enum class DeeperForm {
  plain,     ///< r becomes relu(bn(conv3×3(r)))
  residual,  ///< r becomes relu(r + bn(conv3×3(relu(bn(conv3×3(r))))))
};

/// Inserts layers of the same width after the ReLU `relu`; all its consumers move behind them.
Morphed deepen(const ModelGraph& graph, NodeId relu, DeeperForm form);

/// Widens the whole channel class (graph_rebuild.hpp) of the convolution or linear node `member`
/// to `width` channels: every producer changes, and consumers follow by inference.
Morphed widen(const ModelGraph& graph, NodeId member, std::int64_t width);

/// Adds the ReLU `from` to the output of the later `to` (a batch norm or an add): directly where
/// the shapes agree, else through a 1×1 convolution of the right stride and a batch norm.
Morphed add_skip(const ModelGraph& graph, NodeId from, NodeId to);

/// List where each morph is legal as far as the structure goes; limits on counts are not checked.
std::vector<NodeId> deeper_sites(const ModelGraph& graph, const MorphLimits& limits);
/// Lists one producer of each class that may be widened.
std::vector<NodeId> wider_sites(const ModelGraph& graph, const MorphLimits& limits);

/// Returns true when the graph is within all limits.
bool within_limits(const ModelGraph& graph, const MorphLimits& limits);

/// Makes one morph of a kind and place drawn from `random`, within the limits; nothing when a
/// bounded number of draws found none.
std::optional<Morphed> random_morph(const ModelGraph& graph, const MorphLimits& limits,
                                    RandomStream& random);

}  // namespace heteroperf
