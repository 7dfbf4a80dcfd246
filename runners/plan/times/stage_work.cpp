// The operations and bytes of a stage on one rank, pass by pass.
//
// Operations are the strict counts of the graph. Bytes are what each node would read and write by
// itself: inputs and parameters once, outputs once. What grows with the samples and what does not
// (parameters) are kept apart, so that the work of any micro-batch follows from one pass over the
// graph. Chains of fused nodes are grouped, since a probe measures them as one operation; without a
// measurement their nodes are timed one by one. A node that is computed for a sample's items knows
// how many there usually are, so that whoever asks for samples need not. Ranks of one degree mostly
// have equal work; the table keeps equal works once, so that callers may compare addresses.
#include "runners/plan/times/stage_work.hpp"

#include <algorithm>
#include <set>
#include <variant>

#include "metrics/base/id.hpp"
#include "runners/plan/memory/stage_memory.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

PassWork pass_of(const OperatorWork::Pass& pass, double samples) {
  const double bytes = pass.bytes * samples + (pass.bytes > 0 ? pass.fixed_bytes : 0);
  return {pass.operations * samples, bytes};
}

/// Rows, columns and summed of a product's pass.
std::array<double, 3> product_of(const OperatorWork& work, TrainingPass pass, double samples) {
  const double rows = work.rows * samples;
  switch (pass) {
    case TrainingPass::forward:
      return {rows, work.columns, work.summed};
    case TrainingPass::input_gradient:
      return {rows, work.summed, work.columns};
    case TrainingPass::weight_gradient:
      break;
  }
  return {work.columns, work.summed, rows};
}

/// The work of one node, for one of its items.
class NodeWork {
 public:
  NodeWork(const ModelGraph& graph, NodeId id, Precision precision)
      : graph_(graph), id_(id), node_(graph.node(id)), precision_(precision) {
    work_.items = usual_items(graph, node_);
    output_ = bytes(node_);
    for (const NodeId input : node_.inputs) {
      const Node& from = graph.node(input);
      // A sequence takes the rows of all of its items.
      inputs_ += bytes(from) * usual_items(graph, from) / work_.items;
      has_gradient_ = has_gradient_ || graph.node(input).differentiable;
    }
    parameters_ = parameter_bytes();
  }

  OperatorWork run() {
    work_.operation = is<Linear>() ? "gemm" : kind_name(node_.attributes);
    work_.attention = is_attention(node_.attributes);
    set_operations();
    set_extents();
    set_forward();
    if (has_gradient_) set_input_gradient();
    if (has_trained_weight(graph_, node_)) set_weight_gradient();
    return work_;
  }

 private:
  template <class... Kinds>
  bool is() const {
    return (std::holds_alternative<Kinds>(node_.attributes) || ...);
  }
  double bytes(const Node& node) const {
    return static_cast<double>(element_count(node.output)) *
           static_cast<double>(bytes_per_output(node, precision_));
  }
  /// A tied head has them too.
  double parameter_bytes() const {
    double elements = parameter_elements(node_);
    const auto* linear = std::get_if<Linear>(&node_.attributes);
    if (linear != nullptr && !linear->tied_to.empty()) {
      elements += parameter_elements(graph_.node(graph_.find(linear->tied_to)));
    }
    return elements * static_cast<double>(bytes_per_element(precision_));
  }
  /// Nothing moves: a view, or a dropout that keeps all.
  bool is_view() const {
    const auto* dropout = std::get_if<Dropout>(&node_.attributes);
    return is<Input, Flatten>() || (dropout != nullptr && dropout->p == 0);
  }
  bool is_product() const { return is<Linear, Conv2d>(); }
  bool is_table() const { return is<Embedding, PositionEmbedding, TypeEmbedding, ClassToken>(); }
  /// Bytes of the rows of a table that an item uses.
  double rows() const { return std::min(parameters_, output_); }

  /// Strict operations of the three passes, and the extents of a linear's product.
  void set_operations() {
    BatchExtent one;
    if (node_.items) one.items[*node_.items] = 1;
    const StrictOps ops = strict_node_ops(graph_, id_, one);
    work_.forward.operations = ops.forward.to_double();
    work_.input_gradient.operations = ops.input_gradient.to_double();
    work_.weight_gradient.operations = ops.weight_gradient.to_double();
    const auto* linear = std::get_if<Linear>(&node_.attributes);
    if (linear == nullptr) return;
    const Shape& input = graph_.node(node_.inputs[0]).output;
    work_.summed = static_cast<double>(input.back());
    work_.columns = static_cast<double>(linear->out_features);
    work_.rows = static_cast<double>(element_count(input)) / work_.summed;
  }

  void take(const Shape& shape) { work_.extents.assign(shape.begin(), shape.end()); }

  /// The shape by which a measured entry of the operation is looked up.
  void set_extents() {
    take(is<CrossEntropy>() ? graph_.node(node_.inputs[0]).output : node_.output);
    if (const auto* conv = std::get_if<Conv2d>(&node_.attributes)) {
      const std::int64_t inputs = graph_.node(node_.inputs[0]).output[0] / conv->groups;
      for (const std::int64_t extent : {inputs, conv->kernel[0], conv->kernel[1]}) {
        work_.extents.push_back(static_cast<double>(extent));
      }
    } else if (const auto* attention = std::get_if<Attention>(&node_.attributes)) {
      const std::int64_t length = node_.output[0];
      take({attention->heads, length, attention->part.whole_length(length), attention->head_dim});
    } else if (const auto* cross = std::get_if<CrossAttention>(&node_.attributes)) {
      const std::int64_t others = graph_.node(node_.inputs[1]).output[0];
      take({cross->heads, node_.output[0], others, cross->head_dim});
    }
  }

  void set_forward() {
    if (is_view()) return;
    work_.forward.bytes = inputs_ + output_;
    if (is_table()) work_.forward.bytes += rows();
    if (is<TakeToken>()) work_.forward.bytes = 2 * output_;
    if (is<CrossEntropy>()) work_.forward.bytes = inputs_;
    if (!is_table()) work_.forward.fixed_bytes = parameters_;
  }

  /// A node that only hands the gradient on moves nothing.
  void set_input_gradient() {
    if (is_view() || is<Add>() || is_table()) return;
    OperatorWork::Pass& pass = work_.input_gradient;
    if (is<CrossEntropy>()) {
      pass.bytes = 2 * inputs_;
    } else if (is_product()) {
      pass.bytes = inputs_ + output_;
      pass.fixed_bytes = parameters_;
    } else if (is<Concat, MaxPool, AvgPool, GlobalAvgPool, ToSequence, TakeToken, Rotary>()) {
      pass.bytes = inputs_ + output_;
    } else {
      pass.bytes = 2 * inputs_ + output_ + (work_.attention ? output_ : 0);
    }
  }

  /// Sums are read and written.
  void set_weight_gradient() {
    OperatorWork::Pass& pass = work_.weight_gradient;
    pass.bytes = output_ + (is_table() ? 2 * rows() : inputs_);
    if (!is_table()) pass.fixed_bytes = 2 * parameters_;
  }

  const ModelGraph& graph_;
  NodeId id_;
  const Node& node_;
  Precision precision_;
  double inputs_ = 0, output_ = 0, parameters_ = 0;
  bool has_gradient_ = false;
  OperatorWork work_;
};

}  // namespace

PassWork OperatorWork::of(TrainingPass pass, double samples) const {
  samples *= items;
  constexpr std::array passes{&OperatorWork::forward, &OperatorWork::input_gradient,
                              &OperatorWork::weight_gradient};
  PassWork work = pass_of(this->*passes[static_cast<std::size_t>(pass)], samples);
  if (rows > 0) {
    work.extents = product_of(*this, pass, samples);
    work.shape = WorkShape({work.extents.begin(), work.extents.end()});
    return work;
  }
  std::vector<double> all{samples};
  all.insert(all.end(), extents.begin(), extents.end());
  work.shape = WorkShape(all);
  return work;
}

PassWork FusedWork::of(TrainingPass pass, double samples) const {
  PassWork sum;
  for (const OperatorWork& node : nodes) {
    const PassWork work = node.of(pass, samples);
    sum.operations += work.operations;
    sum.bytes += work.bytes;
    if (&node != &nodes[main]) continue;
    sum.extents = work.extents;
    sum.shape = work.shape;
  }
  return sum;
}

PassTime pass_time(const ClassRates& rates, const std::string& device_class, const FusedWork& work,
                   TrainingPass pass, double samples) {
  const auto measured = rates.measured(
      device_class, work.pass_entries[static_cast<std::size_t>(pass)], work.of(pass, samples));
  if (measured) return {measured->seconds, measured};
  PassTime time;
  for (const OperatorWork& node : work.nodes) {
    time.seconds += rates.pass_s(device_class, node.operation, node.of(pass, samples));
  }
  return time;
}

// All parts of a sequence are the same work.
const StageWork& StageWorkTable::of(StageId stage, int degree, int index,
                                    const SequencePart& part) {
  const SequencePart first = part.first_part();
  const auto known = known_.find({stage, degree, index, first});
  if (known != known_.end()) return *known->second;
  StageWork made = make(stage, shards_.of(degree, index, first));
  // An equal work of a lower index takes the place of this one.
  for (int lower = 0; lower < index; ++lower) {
    const auto before = known_.find({stage, degree, lower, first});
    if (before == known_.end() || !(*before->second == made)) continue;
    return *known_.emplace(std::tuple(stage, degree, index, first), before->second).first->second;
  }
  works_.push_back(std::move(made));
  known_.emplace(std::tuple(stage, degree, index, first), &works_.back());
  return works_.back();
}

/// Bytes per sample of an attention's keys and values, of all positions, where ranks have parts.
double passed_round(const Node& node, double element) {
  const auto* attention = std::get_if<Attention>(&node.attributes);
  if (attention == nullptr || attention->part.whole()) return 0;
  return static_cast<double>(2 * attention->kv_heads * attention->head_dim *
                             attention->part.whole_length(node.output[0])) *
         element;
}

/// The chain's shape is that of its first node that computes; its name joins those of the nodes.
FusedWork StageWorkTable::make_operation(const ModelGraph& graph,
                                         const std::vector<NodeId>& nodes) const {
  const double element = static_cast<double>(bytes_per_element(precision_));
  FusedWork work;
  for (const NodeId id : nodes) {
    work.nodes.push_back(NodeWork(graph, id, precision_).run());
    const OperatorWork& operator_work = work.nodes.back();
    work.operation += (work.operation.empty() ? "" : "+") + std::string(operator_work.operation);
    work.attention = work.attention || operator_work.attention;
    work.passed_round += passed_round(graph.node(id), element);
    const bool computes = operator_work.forward.operations > 0;
    if (computes && work.nodes[work.main].forward.operations <= 0)
      work.main = work.nodes.size() - 1;
    work.last = id;
  }
  for (const TrainingPass pass : training_passes) {
    work.pass_entries[static_cast<std::size_t>(pass)] = measured_operation(work.operation, pass);
  }
  return work;
}

// Tensor-parallel ranks sum partial outputs and gradients, and two small ones of a loss over a cut
// vocabulary; ranks with parts of a sequence pooled rows, and gradients of what other stages gave
// each of them whole.
StageWork StageWorkTable::make(StageId stage, const TensorShard& shard) const {
  const double element = static_cast<double>(bytes_per_element(precision_));
  const auto size_of = [&](const Node& node) {
    return static_cast<double>(element_count(node.output)) * element *
           usual_items(shard.graph, node);
  };
  StageWork work;
  for (const FusedNodes& chain : fused_nodes({staged_, stage, shard})) {
    work.operations.push_back(make_operation(shard.graph, chain.nodes));
  }
  std::set<NodeId> given;  // by other stages, to each part
  for (const NodeId id : staged_.nodes[stage]) {
    const Node& node = shard.graph.node(id);
    if (shard.pools_part(id)) {
      work.context.forward.push_back(size_of(node));
      if (node.differentiable) work.context.gradient.push_back(size_of(node));
    }
    for (const NodeId input : node.inputs) {
      const bool from_elsewhere = staged_.stage_of[input.index()] != stage;
      if (from_elsewhere && shard.each_part_has(input)) given.insert(input);
    }
  }
  for (const NodeId id : given) {
    const Node& node = shard.graph.node(id);
    if (node.differentiable) work.context.gradient.push_back(size_of(node));
  }
  if (shard.degree == 1) return work;
  for (const NodeId id : staged_.nodes[stage]) {
    const Node& node = shard.graph.node(id);
    if (shard.output_is_partial[id.index()]) work.tensor.forward.push_back(size_of(node));
    if (!std::holds_alternative<CrossEntropy>(node.attributes)) continue;
    if (shard.vocabulary[id.index()] == 0) continue;
    const Shape& logits = shard.graph.node(node.inputs[0]).output;
    const double rows =
        static_cast<double>(element_count(logits)) / static_cast<double>(logits.back());
    const double number = static_cast<double>(statistic_bytes(precision_));
    work.tensor.forward.push_back(rows * number);
    work.tensor.forward.push_back(3 * rows * number);
  }
  const std::vector<bool> partial = gradient_is_partial_within(shard, staged_.stage_of, stage);
  for (std::size_t n = 0; n < partial.size(); ++n) {
    const Node& node = shard.graph.nodes()[n];
    if (partial[n] && node.differentiable) work.tensor.gradient.push_back(size_of(node));
  }
  return work;
}

}  // namespace heteroperf
