#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/parameters/rank_share.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// Elements [begin, end) of a store's arenas.
struct ArenaRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
  friend bool operator==(const ArenaRange&, const ArenaRange&) = default;
};

/// Every parameter of a graph as a rank has it that holds the whole graph.
std::vector<HeldParameter> whole_parameters(const ModelGraph& graph);

/// Fills `values` (contiguous, float or double) by the rule of parameter `index` of `node`:
/// - biases 0, norm weights 1;
/// - conv2d: sqrt(2 / (out_channels · kh · kw)) (He et al. 2015, fan out); in a graph with
///   attention (a patch embedding): sqrt(1 / fan in);
/// - in a graph with attention, linear and tables: 0.02, and a linear whose output is added to
///   the residual stream 0.02 / sqrt(2 · attention nodes) (GPT-2);
/// - but where a model of images and texts has attention (after CLIP, Radford et al. 2021): linear
///   sqrt(1 / fan in), divided by sqrt(2 · attention nodes of the component) before the residual
///   stream; tables sqrt(1 / width), but positions of patches 1, as large as the patches: a tower
///   that pools one row learns late where things are if places look alike;
/// - otherwise linear: sqrt(2 / fan in) before a ReLU, else sqrt(1 / (3 · fan in)).
/// All but the constants are deviations of a normal distribution around 0. Element i of the full
/// parameter is a pure function of (seed, node name, parameter index, i): the same whatever the
/// rank, the shard of it that `values` holds, or the thread count.
void fill_initial_values(const ModelGraph& graph, NodeId node, std::size_t index,
                         std::uint64_t seed, const at::Tensor& values, const ParameterShard& shard);

/// The parameters that one rank holds in one flat arena, their gradients in another. Frozen ones
/// lie apart: they have a value and nothing else, neither ordinal nor gradient, and nobody sums,
/// updates or stores them, since the seed gives them again.
///
/// Part by part, and in each part tensors of two and more dimensions first, so that weight decay is
/// a prefix of every part. Each tensor starts on a 64-byte boundary; the gaps stay zero. In bf16
/// the operators read and write bf16 arenas while the optimizer works on float32 masters:
/// `collect_gradient` and `publish` carry between them.
class ParameterStore {
 public:
  /// Initial values are those of the full graph's parameters, whatever part of them is held.
  ParameterStore(const ModelGraph& graph, const std::vector<HeldParameter>& held,
                 Precision precision, std::uint64_t seed, at::Device device = at::kCPU);
  /// The whole graph on one rank.
  ParameterStore(const ModelGraph& graph, Precision precision, std::uint64_t seed);

  /// Views of the arenas that the operators read and write. `index` is the full node's; the last
  /// two are for parameters in training.
  const at::Tensor& parameter(NodeId node, std::size_t index) const;
  bool is_frozen(NodeId node, std::size_t index) const { return frozen_.contains({node, index}); }
  const at::Tensor& gradient(NodeId node, std::size_t index) const;
  /// Dense number of a parameter, below `count()`; ascending with its place in the arena.
  std::size_t ordinal(NodeId node, std::size_t index) const;
  std::size_t count() const { return entries_.size(); }

  /// A parameter's place: elements [offset, offset + count) of the arenas, in the order of memory
  /// (a convolution's is {out, kh, kw, in}).
  struct Place {
    HeldParameter held;
    std::int64_t offset = 0, count = 0;
  };
  const Place& place(std::size_t ordinal) const { return entries_[ordinal].place; }

  /// Arena elements of a part; matrices are the prefix up to `matrices_end`. Parts behind the last
  /// one with parameters are not listed.
  struct PartRange {
    std::int64_t begin = 0, matrices_end = 0, end = 0;
  };
  std::span<const PartRange> parts() const { return parts_; }

  /// Element type of those views.
  at::ScalarType operator_type() const { return working_.scalar_type(); }
  at::Device device() const { return working_.device(); }

  /// The flat tensors {elements} that the optimizer reads and writes; float32 for bf16.
  const at::Tensor& master() const { return master_; }
  /// {elements}: what is summed over replicas; float32 for bf16.
  const at::Tensor& reduced_gradient() const { return reduced_gradient_; }
  std::int64_t elements() const { return elements_; }

  /// bf16: gradients of micro-batches are collected in float32.
  bool collects() const { return !gradient_.is_same(reduced_gradient_); }
  /// After a micro-batch has written this parameter's gradient; nothing to do but in bf16.
  void collect_gradient(std::size_t ordinal, Accumulation accumulation);
  /// After an update of elements [begin, end); nothing to do but in bf16.
  void publish(std::int64_t begin, std::int64_t end);
  void publish() { publish(0, elements_); }

  /// Moves every value by this share of itself, up and down in turn.
  void move(double share);
  /// 32 hexadecimal digits over the bits of the masters.
  std::string fingerprint() const;

 private:
  struct Entry {
    Place place;
    at::Tensor parameter, gradient;
  };
  using Key = std::pair<NodeId, std::size_t>;
  void lay_out(const std::vector<HeldParameter>& held, std::int64_t alignment);
  void make_frozen(const ModelGraph& graph, const std::vector<HeldParameter>& held,
                   std::uint64_t seed);
  void make_arenas(Precision precision, at::Device device);
  void make_views(const ModelGraph& graph);
  at::Tensor initial_values(const ModelGraph& graph, const HeldParameter& held,
                            std::uint64_t seed) const;
  static at::Tensor view_of(const at::Tensor& flat, const HeldParameter& held, const Node& node);

  std::vector<Entry> entries_;
  std::map<Key, std::size_t> ordinals_;
  std::map<Key, at::Tensor> frozen_;
  std::vector<PartRange> parts_;
  std::int64_t elements_ = 0;
  at::Tensor master_, working_, gradient_, reduced_gradient_;
};

}  // namespace heteroperf
