// One operator per node, without fusion. A new kind of node gets an overload here.
//
// The kinds are the alternatives of a variant, so the compiler complains when one of them has no
// overload. Nodes that run as part of a chain, and those that work on a part of the vocabulary, get
// their operators in operator_group.cpp.
#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

/// One overload per kind of node.
class OperatorMaker {
 public:
  OperatorMaker(const ModelGraph& graph, const Node& node, at::ScalarType type)
      : graph_(graph), node_(node), type_(type) {}

  OperatorPtr operator()(const Input&) const {
    throw UserError(fmt::format("node '{}' is the sample", node_.name), "no operator computes it");
  }
  OperatorPtr operator()(const Conv2d& a) const { return make_conv2d(a); }
  OperatorPtr operator()(const Linear& a) const { return make_linear(a); }
  OperatorPtr operator()(const BatchNorm& a) const { return make_batch_norm(a, input()[0], type_); }
  OperatorPtr operator()(const LayerNorm& a) const { return make_layer_norm(a); }
  OperatorPtr operator()(const RmsNorm& a) const { return make_rms_norm(a); }
  OperatorPtr operator()(const Relu&) const { return make_relu(); }
  OperatorPtr operator()(const Gelu& a) const { return make_gelu(a); }
  OperatorPtr operator()(const Silu&) const { return make_silu(); }
  OperatorPtr operator()(const Tanh&) const { return make_tanh(); }
  OperatorPtr operator()(const Add&) const { return make_add(node_.inputs.size()); }
  OperatorPtr operator()(const Multiply&) const { return make_multiply(); }
  OperatorPtr operator()(const Concat&) const {
    std::vector<std::int64_t> extents;
    for (std::size_t i = 0; i < node_.inputs.size(); ++i) extents.push_back(input(i)[0]);
    return make_concat(std::move(extents));
  }
  OperatorPtr operator()(const MaxPool& a) const {
    if (a.kernel[0] * a.kernel[1] > 256) {
      throw UserError(
          fmt::format("max_pool '{}' has a window of {}x{}", node_.name, a.kernel[0], a.kernel[1]),
          "at most 256 elements can be told apart");
    }
    return make_max_pool(a, input());
  }
  OperatorPtr operator()(const AvgPool& a) const { return make_avg_pool(a, input()); }
  OperatorPtr operator()(const GlobalAvgPool&) const { return make_global_avg_pool(input()); }
  OperatorPtr operator()(const Flatten&) const { return make_flatten(input()); }
  OperatorPtr operator()(const ToSequence&) const { return make_to_sequence(input()); }
  OperatorPtr operator()(const Embedding& a) const { return make_embedding(a); }
  OperatorPtr operator()(const PositionEmbedding&) const { return make_position_embedding(); }
  OperatorPtr operator()(const TypeEmbedding&) const { return make_type_embedding(); }
  OperatorPtr operator()(const ClassToken&) const { return make_class_token(); }
  OperatorPtr operator()(const TakeToken& a) const { return make_take_token(a, input()); }
  OperatorPtr operator()(const Rotary& a) const { return make_rotary(a); }
  OperatorPtr operator()(const Attention& a) const { return make_attention(a); }
  OperatorPtr operator()(const Dropout& a) const { return make_dropout(a); }
  OperatorPtr operator()(const CrossEntropy& a) const { return make_cross_entropy(a); }

 private:
  const Shape& input(std::size_t i = 0) const { return graph_.node(node_.inputs[i]).output; }

  const ModelGraph& graph_;
  const Node& node_;
  at::ScalarType type_;
};

}  // namespace

// A kind without an overload does not compile.
std::unique_ptr<Operator> make_operator(const ModelGraph& graph, NodeId node, at::ScalarType type) {
  if (type != at::kFloat && type != at::kDouble && type != at::kBFloat16) {
    throw UserError(fmt::format("no operators for tensors of {}", c10::toString(type)),
                    "they are built for fp32, bf16 and fp64");
  }
  const Node& subject = graph.node(node);
  return std::visit(OperatorMaker(graph, subject, type), subject.attributes);
}

}  // namespace heteroperf
