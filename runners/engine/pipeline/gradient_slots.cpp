#include "runners/engine/pipeline/gradient_slots.hpp"

#include <ATen/ops/add.h>

#include <utility>

#include "metrics/base/error.hpp"

namespace heteroperf {

GradientSlots::GradientSlots(std::vector<bool> needed)
    : needed_(std::move(needed)), slots_(needed_.size()) {}

at::Tensor GradientSlots::take(NodeId node) { return std::exchange(at(node), at::Tensor()); }

void GradientSlots::clear() {
  for (at::Tensor& slot : slots_) slot.reset();
}

void GradientSlots::add(NodeId node, at::Tensor gradient) {
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

bool held_alone(const at::Tensor& tensor) {
  return tensor.defined() && tensor.use_count() == 1 && tensor.storage().use_count() == 1;
}

bool SlotSink::wanted(std::size_t input) const {
  return input < nodes_.size() && slots_.needed(nodes_[input]);
}

// The offered handle is a second one, so the test comes first.
at::Tensor SlotSink::reusable(std::size_t input) {
  if (!wanted(input)) return {};
  const at::Tensor& slot = slots_.at(nodes_[input]);
  return held_alone(slot) ? slot : at::Tensor();
}

void SlotSink::put(std::size_t input, at::Tensor gradient) {
  if (wanted(input)) slots_.add(nodes_[input], std::move(gradient));
}

void SlotSink::replace(std::size_t input, at::Tensor gradient) {
  HETEROPERF_EXPECT(wanted(input));
  slots_.at(nodes_[input]) = std::move(gradient);
}

}  // namespace heteroperf
