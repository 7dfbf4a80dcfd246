// Operators that join several tensors: sums, products and concatenations.
//
// The gradient of a sum is the same tensor for each of its inputs, so nothing is copied: all inputs
// get a handle of one tensor, and the sink decides who may write into it. A ReLU behind a sum is
// fused, because it would read and write the whole tensor once more.
#include <ATen/ops/cat.h>

#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

/// Sum of two or more tensors, then relu when asked; saves its output only for the relu.
class AddOperator final : public Operator {
 public:
  AddOperator(std::size_t inputs, Activation activation)
      : inputs_(inputs), activation_(activation) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    at::Tensor left = canonical(inputs[0]);
    at::Tensor y = uninitialised_like(left);
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      const bool relu = i + 1 == inputs.size() && activation_ == Activation::relu;
      run_kernel(&KernelTable::add, elements_of(y), left, nullptr, 1, canonical(inputs[i]), relu,
                 y);
      // The output is added to in place for every input after the second.
      left = y;
    }
    saved.clear();
    if (activation_ == Activation::relu) saved = {y};
    return y;
  }

 private:
  void gradients(const BackwardPass& pass) override {
    at::Tensor g = pass.output_gradient;
    if (activation_ == Activation::relu) {
      const at::Tensor dy = canonical(g);
      g = uninitialised_like(dy);
      run_kernel(&KernelTable::activation_backward, elements_of(dy), ActivationKind::relu, dy,
                 pass.saved[0], g, nullptr);
    }
    for (std::size_t i = 0; i < inputs_; ++i) {
      if (pass.wants(i)) pass.sink->put(i, g);
    }
  }

  std::size_t inputs_;
  Activation activation_;
};

class MultiplyOperator final : public Operator {
 public:
  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    saved = {canonical(inputs[0]), canonical(inputs[1])};
    return product(saved[0], saved[1]);
  }

 private:
  void gradients(const BackwardPass& pass) override {
    const at::Tensor dy = canonical(pass.output_gradient);
    if (pass.wants(0)) pass.sink->put(0, product(dy, pass.saved[1]));
    if (pass.wants(1)) pass.sink->put(1, product(dy, pass.saved[0]));
  }

  static at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
    at::Tensor y = uninitialised_like(a);
    run_kernel(&KernelTable::multiply, elements_of(a), a, b, y);
    return y;
  }
};

/// Along the first dimension of a sample. Saves nothing.
class ConcatOperator final : public Operator {
 public:
  explicit ConcatOperator(std::vector<std::int64_t> extents) : extents_(std::move(extents)) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    saved.clear();
    return at::cat(inputs, 1);
  }

 private:
  void gradients(const BackwardPass& pass) override {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < extents_.size(); offset += extents_[i++]) {
      if (!pass.wants(i)) continue;
      pass.sink->put(i, canonical(pass.output_gradient.narrow(1, offset, extents_[i])));
    }
  }

  std::vector<std::int64_t> extents_;
};

}  // namespace

OperatorPtr make(const Add&, const OperatorPlace& place, Activation activation) {
  return std::make_unique<AddOperator>(place.node.inputs.size(), activation);
}
OperatorPtr make(const Multiply&, const OperatorPlace&) {
  return std::make_unique<MultiplyOperator>();
}
OperatorPtr make(const Concat&, const OperatorPlace& place) {
  std::vector<std::int64_t> extents;
  for (std::size_t i = 0; i < place.node.inputs.size(); ++i) extents.push_back(place.input(i)[0]);
  return std::make_unique<ConcatOperator>(std::move(extents));
}

}  // namespace heteroperf
