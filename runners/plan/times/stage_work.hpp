#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runners/plan/staged_graph.hpp"
#include "runners/plan/tensor/tensor_parallel.hpp"
#include "runners/plan/times/class_rates.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// The work of one node of a stage on one rank. README.md (Times) has the bytes.
/// Units: strict operations and bytes, per item where an item is named.
struct OperatorWork {
  /// A pass: what grows with the samples, and what does not (parameters).
  struct Pass {
    double operations = 0, bytes = 0;  ///< per item
    double fixed_bytes = 0;
    friend bool operator==(const Pass&, const Pass&) = default;
  };
  const char* operation = "";  ///< as efficiency entries call it
  bool attention = false;
  double items = 1;  ///< the usual_items() of a sample that the node is computed for
  double rows = 0, columns = 0,
         summed = 0;  ///< extents of a product's forward, rows per item; 0: none
  /// README.md, Measured operations: extents behind the items; a product's come from the three
  /// above.
  std::vector<double> extents;
  Pass forward, input_gradient, weight_gradient;
  friend bool operator==(const OperatorWork&, const OperatorWork&) = default;

  PassWork of(TrainingPass pass, double samples) const;
};

/// Nodes that the engine runs as one operation.
struct FusedWork {
  std::string operation;                    ///< "gemm+gelu"
  std::array<std::string, 3> pass_entries;  ///< measured_operation() by pass
  std::vector<OperatorWork> nodes;
  std::size_t main = 0;  ///< the node whose shape it has
  NodeId last;           ///< the node whose output exists
  bool attention = false;
  /// Bytes per sample of keys and values, of the whole sequence, that go round context-parallel
  /// ranks.
  double passed_round = 0;

  /// All nodes together.
  PassWork of(TrainingPass pass, double samples) const;
  friend bool operator==(const FusedWork&, const FusedWork&) = default;
};

/// Seconds of a pass, and what says so.
struct PassTime {
  double seconds = 0;
  std::optional<ClassRates::Measured> measured;  ///< else worked out node by node
};
PassTime pass_time(const ClassRates& rates, const std::string& device_class, const FusedWork& work,
                   TrainingPass pass, double samples);

/// All that a stage asks for on one rank of a replica, and what ranks sum.
struct StageWork {
  std::vector<FusedWork> operations;
  /// Bytes per sample of each all-reduce of a pass.
  struct Sums {
    std::vector<double> forward, gradient;
    friend bool operator==(const Sums&, const Sums&) = default;
  };
  Sums tensor;   ///< among tensor-parallel ranks
  Sums context;  ///< among the ranks with the parts of a sequence
  friend bool operator==(const StageWork&, const StageWork&) = default;
};

/// The work of a graph's stages, each worked out once.
class StageWorkTable {
 public:
  /// Graph and stages outlive it.
  StageWorkTable(const ModelGraph& graph, const StagedGraph& staged, Precision precision)
      : staged_(staged), precision_(precision), shards_(graph) {}

  /// The same address for equal work of one stage and degree. Stays valid.
  const StageWork& of(StageId stage, int degree, int index, const SequencePart& part = {});
  ShardTable& shards() { return shards_; }

 private:
  StageWork make(StageId stage, const TensorShard& shard) const;
  FusedWork make_operation(const ModelGraph& graph, const std::vector<NodeId>& nodes) const;

  const StagedGraph& staged_;
  Precision precision_;
  ShardTable shards_;
  std::deque<StageWork> works_;
  std::map<std::tuple<StageId, int, int, SequencePart>, const StageWork*> known_;
};

}  // namespace heteroperf
