// This file finds the places where a graph may be cut into layers, and the layers that are alike.
//
// A stage sends its outputs to the next one, so a good place to cut is one that a single tensor
// crosses, and a narrow one. The graph's order is walked once while the tensors that are still
// needed are kept in a list; where one is left and it has a gradient, the place counts with the
// tensor's elements as its width. Places much wider than the median are dropped, such as the one
// between a language model's head and its loss: a stage that ends there would send several times as
// much.
//
// Two layers are alike when their nodes agree one by one in kind, shapes and inputs, where an input
// is either the same place within the layer or any tensor of the same shape before it. Most layers
// of a deep model are alike, which is why timing each kind once makes planning cheap.
#include "runners/plan/search/problem/layer_cuts.hpp"

#include <algorithm>
#include <iterator>

#include "metrics/base/id.hpp"

namespace heteroperf {
namespace {

/// The elements of the tensor that crosses alone; 0 where none or several do.
std::vector<std::int64_t> widths(const ModelGraph& graph) {
  const auto& nodes = graph.nodes();
  std::vector<std::size_t> last_use(nodes.size(), 0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const NodeId input : nodes[i].inputs) last_use[input.index()] = i;
  }
  std::vector<std::int64_t> result(nodes.size() + 1, 0);
  std::vector<std::size_t> open;
  for (std::size_t end = 1; end < nodes.size(); ++end) {
    open.push_back(end - 1);
    std::erase_if(open, [&](std::size_t i) { return last_use[i] < end; });
    if (open.size() == 1 && nodes[open[0]].differentiable) {
      result[end] = element_count(nodes[open[0]].output);
    }
  }
  return result;
}

struct LayerNodes {
  std::size_t first = 0, end = 0;
};

bool alike(const ModelGraph& graph, LayerNodes a, LayerNodes b) {
  if (a.end - a.first != b.end - b.first) return false;
  for (std::size_t i = 0; i < a.end - a.first; ++i) {
    const Node &x = graph.nodes()[a.first + i], &y = graph.nodes()[b.first + i];
    if (x.attributes != y.attributes || x.output != y.output ||
        x.inputs.size() != y.inputs.size() || x.differentiable != y.differentiable) {
      return false;
    }
    for (std::size_t k = 0; k < x.inputs.size(); ++k) {
      const Node &from_x = graph.node(x.inputs[k]), &from_y = graph.node(y.inputs[k]);
      const bool same_place = x.inputs[k].index() - a.first == y.inputs[k].index() - b.first;
      const bool both_outside = x.inputs[k].index() < a.first && y.inputs[k].index() < b.first;
      if (!(same_place || both_outside) || from_x.output != from_y.output ||
          from_x.differentiable != from_y.differentiable) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

std::vector<std::size_t> layer_ends(const ModelGraph& graph, double widest) {
  const std::vector<std::int64_t> width = widths(graph);
  std::vector<std::int64_t> places;
  std::copy_if(width.begin(), width.end(), std::back_inserter(places),
               [](std::int64_t one) { return one > 0; });
  std::sort(places.begin(), places.end());
  const double limit = places.empty() ? 0 : widest * static_cast<double>(places[places.size() / 2]);
  std::vector<std::size_t> ends;
  for (std::size_t end = 1; end < graph.nodes().size(); ++end) {
    if (width[end] > 0 && static_cast<double>(width[end]) <= limit) ends.push_back(end);
  }
  ends.push_back(graph.nodes().size());
  return ends;
}

std::vector<int> layer_kinds(const ModelGraph& graph, const std::vector<std::size_t>& ends) {
  std::vector<int> kinds;
  std::vector<LayerNodes> known;
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    const LayerNodes layer{first, end};
    const auto same = std::find_if(known.begin(), known.end(),
                                   [&](LayerNodes other) { return alike(graph, layer, other); });
    kinds.push_back(static_cast<int>(same - known.begin()));
    if (same == known.end()) known.push_back(layer);
    first = end;
  }
  return kinds;
}

}  // namespace heteroperf
