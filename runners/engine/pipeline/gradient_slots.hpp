#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/engine/operators/operator.hpp"

namespace heteroperf {

/// One gradient per node's output while a backward pass runs.
class GradientSlots {
 public:
  /// `needed[n]`: whether node n's output needs a gradient.
  explicit GradientSlots(std::vector<bool> needed);

  bool needed(NodeId node) const { return needed_[position(node)]; }
  /// Hands the gradient out and empties the slot.
  at::Tensor take(NodeId node);
  void add(NodeId node, at::Tensor gradient);
  void clear();
  at::Tensor& at(NodeId node) { return slots_[position(node)]; }

 private:
  static std::size_t position(NodeId node) { return static_cast<std::size_t>(node.value()); }

  std::vector<bool> needed_;
  std::vector<at::Tensor> slots_;
};

/// Whether this handle is the only one to the tensor and to its memory.
bool held_alone(const at::Tensor& tensor);

/// The slots of one operator's inputs. Inputs beyond `nodes` (the targets) need no gradient.
class SlotSink final : public GradientSink {
 public:
  SlotSink(GradientSlots& slots, const std::vector<NodeId>& nodes) : slots_(slots), nodes_(nodes) {}

  bool wanted(std::size_t input) const override;
  at::Tensor reusable(std::size_t input) override;
  void put(std::size_t input, at::Tensor gradient) override;
  void replace(std::size_t input, at::Tensor gradient) override;

 private:
  GradientSlots& slots_;
  const std::vector<NodeId>& nodes_;
};

}  // namespace heteroperf
