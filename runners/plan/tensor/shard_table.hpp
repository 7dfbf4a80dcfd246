#pragma once

#include <map>
#include <utility>

#include "runners/plan/tensor/tensor_parallel.hpp"

namespace heteroperf {

/// The tensor-parallel shares of one graph, each made once.
class ShardTable {
 public:
  /// The graph outlives the table.
  explicit ShardTable(const ModelGraph& graph) : graph_(graph) {}

  /// The reference stays valid as long as the table. Throws as tensor_shard().
  const TensorShard& of(int degree, int index) {
    const auto known = shards_.find({degree, index});
    if (known != shards_.end()) return known->second;
    return shards_.emplace(std::pair(degree, index), tensor_shard(graph_, degree, index))
        .first->second;
  }

 private:
  const ModelGraph& graph_;
  std::map<std::pair<int, int>, TensorShard> shards_;
};

}  // namespace heteroperf
