#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "workloads/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// All parameters of a model in one flat arena, their gradients in another.
///
/// Tensors of two and more dimensions come first, so that weight decay is a prefix. Each starts on
/// a 64-byte boundary; the gaps stay zero. In bf16 the operators read and write bf16 arenas while
/// the optimizer works on float32 masters: `collect_gradients` and `publish` carry between them.
class ParameterStore {
 public:
  ParameterStore(const ModelGraph& graph, Precision precision, std::uint64_t seed);

  /// What the operators read and write: views of the arenas.
  const at::Tensor& parameter(NodeId node, std::size_t index) const;
  const at::Tensor& gradient(NodeId node, std::size_t index) const;
  /// Dense number of a parameter, below `count()`.
  std::size_t ordinal(NodeId node, std::size_t index) const;
  std::size_t count() const { return entries_.size(); }

  /// Element type of those views.
  at::ScalarType operator_type() const { return working_.scalar_type(); }

  /// What the optimizer reads and writes, {elements}; float32 for bf16.
  const at::Tensor& master() const { return master_; }
  /// {elements + 1}: the gradients and, behind them, a place that rides along in the all-reduce.
  const at::Tensor& reduced_gradient() const { return reduced_gradient_; }
  std::int64_t elements() const { return elements_; }
  /// Leading elements that belong to matrices.
  std::int64_t matrix_elements() const { return matrix_elements_; }

  enum class Collect { overwrite, add };
  /// After a micro-batch's backward; nothing to do but in bf16.
  void collect_gradients(Collect how);
  /// After an update; nothing to do but in bf16.
  void publish();

  /// 32 hexadecimal digits over the bits of the masters.
  std::string fingerprint() const;

 private:
  struct Entry {
    NodeId node;
    std::size_t index;
    std::int64_t offset;
    at::Tensor parameter, gradient;
  };
  void lay_out(const ModelGraph& graph, std::int64_t alignment);
  void make_arenas(Precision precision);
  void make_views(const ModelGraph& graph);
  void initialise(const ModelGraph& graph, const Entry& entry, std::uint64_t seed);
  static at::Tensor view_of(const at::Tensor& arena, const Entry& entry, const Node& node);

  std::vector<Entry> entries_;
  std::vector<std::size_t> first_of_node_;  ///< into position_of_
  std::vector<std::size_t> position_of_;    ///< into entries_
  std::int64_t elements_ = 0, matrix_elements_ = 0;
  at::Tensor master_, working_, gradient_, reduced_gradient_;
};

}  // namespace heteroperf
