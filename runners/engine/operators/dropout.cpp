// Dropout by counter: nothing is stored, the backward pass draws the same mask again.
//
// The mask of an element follows from seed, step, global number of the sample, node and place in
// the sample. So it is the same however samples are spread over micro-batches, replicas and
// threads, and a recomputed forward pass draws it again. At evaluation the operator hands its input
// on.
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

/// The mask is a function of (seed, step, global sample, node, element of the sample in canonical
/// layout), made again in the backward pass. Saves nothing.
class DropoutOperator final : public Operator {
 public:
  explicit DropoutOperator(const Dropout& attributes) : keep_(1.0 - attributes.p) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext& context) override {
    saved.clear();
    return context.mode == Mode::train ? masked(inputs[0], context) : inputs[0];
  }

  void input_gradient(const at::Tensor& dy, const Tensors&, const Tensors&,
                      const PassContext& context, GradientSink& sink) override {
    if (sink.wanted(0)) sink.put(0, masked(dy, context));
  }

 private:
  at::Tensor masked(const at::Tensor& tensor, const PassContext& context) const {
    if (keep_ == 1.0) return tensor;
    const at::Tensor x = canonical(tensor);
    at::Tensor y = uninitialised_like(x);
    DropoutKey key;
    key.seed = context.seed;
    key.step = context.step;
    key.node = static_cast<std::uint64_t>(context.node);
    key.first_sample = context.first_sample;
    key.sample_elements = x.numel() / x.size(0);
    key.keep = keep_;
    const KernelTable& kernels = kernels_for(x);
    for_elements(x, [&](RowRange r) { kernels.dropout(r, key, x.data_ptr(), y.data_ptr()); });
    return y;
  }

  double keep_;
};

}  // namespace

OperatorPtr make(const Dropout& attributes, const OperatorPlace&) {
  return std::make_unique<DropoutOperator>(attributes);
}

}  // namespace heteroperf
