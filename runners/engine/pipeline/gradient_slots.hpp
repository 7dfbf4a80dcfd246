#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>

#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "runners/engine/operators/operator_group.hpp"

namespace heteroperf {

/// This handle is the only one to the tensor and to its memory.
inline bool held_alone(const at::Tensor& tensor) {
  return tensor.defined() && tensor.use_count() == 1 && tensor.storage().use_count() == 1;
}

/// One gradient per node's output while a backward pass runs. A second gradient of an output is
/// added to the first, in place where nobody else holds one of the two.
class GradientSlots {
 public:
  /// `needed[n]`: node n's output needs a gradient.
  explicit GradientSlots(std::vector<bool> needed)
      : needed_(std::move(needed)), slots_(needed_.size()) {}

  bool needed(NodeId node) const { return needed_[node.index()]; }
  at::Tensor& at(NodeId node) { return slots_[node.index()]; }
  const at::Tensor& at(NodeId node) const { return slots_[node.index()]; }
  /// Hands the gradient out and empties the slot.
  at::Tensor take(NodeId node) { return std::exchange(at(node), at::Tensor()); }
  void clear() {
    for (at::Tensor& slot : slots_) slot.reset();
  }

  void add(NodeId node, at::Tensor gradient) {
    at::Tensor& slot = at(node);
    if (!slot.defined()) {
      slot = std::move(gradient);
    } else if (held_alone(slot)) {
      slot.add_(gradient);
    } else if (held_alone(gradient)) {
      gradient.add_(slot);
      slot = std::move(gradient);
    } else {
      slot = at::add(slot, gradient);
    }
  }

 private:
  std::vector<bool> needed_;
  std::vector<at::Tensor> slots_;
};

/// The slots of one group's inputs. Inputs beyond those of the group (the targets) need no
/// gradient, and those that the group withholds get none here.
class SlotSink final : public GradientSink {
 public:
  SlotSink(GradientSlots& slots, const OperatorGroup& group)
      : slots_(slots), group_(group), nodes_(group.inputs) {}

  bool wanted(std::size_t input) const override {
    return input < nodes_.size() && slots_.needed(nodes_[input]) && group_.gives_gradient(input);
  }
  // The offered handle is a second one, so the test comes first.
  at::Tensor reusable(std::size_t input) override {
    if (!wanted(input)) return {};
    const at::Tensor& slot = slots_.at(nodes_[input]);
    return held_alone(slot) ? slot : at::Tensor();
  }
  void put(std::size_t input, at::Tensor gradient) override {
    if (wanted(input)) slots_.add(nodes_[input], std::move(gradient));
  }
  void replace(std::size_t input, at::Tensor gradient) override {
    HETEROPERF_EXPECT(wanted(input));
    slots_.at(nodes_[input]) = std::move(gradient);
  }

 private:
  GradientSlots& slots_;
  const OperatorGroup& group_;
  const std::vector<NodeId>& nodes_;
};

}  // namespace heteroperf
