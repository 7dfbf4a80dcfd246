#pragma once

#include "metrics/base/random.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// Extents drawn from a seed.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : stream_(seed) {}
  std::int64_t operator()(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(stream_.below(static_cast<std::uint64_t>(most - least + 1)));
  }

 private:
  RandomStream stream_;
};

inline NodeId add_images(ModelGraph& graph, std::int64_t channels, std::int64_t height,
                         std::int64_t width) {
  Input input;
  input.channels = channels;
  input.height = height;
  input.width = width;
  return graph.add("sample", input, {});
}

/// Tokens below 11 and their embedding {length, features}.
inline NodeId add_sequence(ModelGraph& graph, std::int64_t length, std::int64_t features) {
  Input input;
  input.kind = InputKind::tokens;
  input.length = length;
  const NodeId sample = graph.add("sample", input, {});
  return graph.add("embedding", Embedding{11, features}, {sample});
}

/// Images {2, 3, 3} brought to {features}.
inline NodeId add_vector(ModelGraph& graph, std::int64_t features) {
  const NodeId images = add_images(graph, 2, 3, 3);
  const NodeId flat = graph.add("flatten", Flatten{}, {images});
  return graph.add("features", Linear{features, true, {}}, {flat});
}

}  // namespace heteroperf
