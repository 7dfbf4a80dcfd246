#include "workloads/graph/sequence_roles.hpp"

#include <algorithm>
#include <variant>

#include "workloads/graph/node_kinds.hpp"

namespace heteroperf {
namespace {

template <class... Kinds>
bool is_any(const Node& node) {
  return (std::holds_alternative<Kinds>(node.attributes) || ...);
}

/// Tells by node if its rows are those of a picture: a sequence keeps its rows where others are
/// added, inserted or looked at.
std::vector<bool> rows_of_pictures(const ModelGraph& graph) {
  std::vector<bool> result;
  for (const Node& node : graph.nodes()) {
    const auto* input = std::get_if<Input>(&node.attributes);
    result.push_back(input != nullptr ? input->kind == InputKind::images
                                      : result[node.inputs.front().index()]);
  }
  return result;
}

}  // namespace

// Pictures become sequences whose positions can be dealt where the positions are added to them.
std::vector<SequenceRole> sequence_roles(const ModelGraph& graph, const SequencePart& part) {
  std::vector<SequenceRole> roles(graph.nodes().size(), SequenceRole::whole);
  if (part.whole()) return roles;
  const std::vector<bool> of_pictures = rows_of_pictures(graph);
  const bool deals_patches = part.order == SequenceOrder::patches;
  for (std::size_t n = 0; n < roles.size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (const auto* input = std::get_if<Input>(&node.attributes)) {
      const bool dealt =
          input->kind == InputKind::tokens && !deals_patches && part.divides(input->length);
      if (dealt) roles[n] = SequenceRole::part;
      continue;
    }
    const SequenceRole before = roles[node.inputs.front().index()];
    if (is_loss(node.attributes)) {
      roles[n] = before;
    } else if (node.output.size() == 1) {
      roles[n] = SequenceRole::pooled;
    } else if (deals_patches && of_pictures[n] && is_any<PositionEmbedding>(node) &&
               before == SequenceRole::whole && part.divides(node.output.front())) {
      roles[n] = SequenceRole::part;
    } else {
      roles[n] = before;
    }
  }
  return roles;
}

// A stream of pictures may project rows of a text, to look at them; what knows positions has its
// own.
SequenceOrder usual_order(const ModelGraph& graph, const std::vector<NodeId>& nodes) {
  const auto knows_positions = [&](NodeId id) {
    return is_any<PositionEmbedding, InsertTokens, Rotary, Attention, CrossAttention, TakeToken,
                  TokenPool>(graph.node(id));
  };
  const bool none_knows = std::ranges::none_of(nodes, knows_positions);
  const std::vector<bool> of_pictures = rows_of_pictures(graph);
  const bool pictures = std::ranges::all_of(nodes, [&](NodeId id) {
    return of_pictures[id.index()] || !(none_knows || knows_positions(id));
  });
  return pictures ? SequenceOrder::patches : SequenceOrder::zig_zag;
}

}  // namespace heteroperf
