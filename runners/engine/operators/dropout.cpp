// Dropout by counter: nothing is stored, the backward pass draws the same mask again.
//
// The mask of an element follows from seed, step, global number of the sample, node and place in
// the sample. So it is the same however samples are spread over micro-batches, replicas and
// threads, and a recomputed forward pass draws it again. At evaluation the operator hands its input
// on.
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/unary_operator.hpp"

namespace heteroperf {
namespace {

/// The mask is a function of (seed, step, global sample, node, element of the sample in canonical
/// layout), made again in the backward pass.
at::Tensor masked(const at::Tensor& tensor, double keep, const PassContext& context) {
  if (keep == 1.0) return tensor;
  const at::Tensor x = canonical(tensor);
  at::Tensor y = uninitialised_like(x);
  const DropoutKey key{.seed = context.seed,
                       .step = context.step,
                       .node = static_cast<std::uint64_t>(context.node),
                       .first_sample = context.first_sample,
                       .sample_elements = x.numel() / x.size(0),
                       .keep = keep};
  run_kernel(&KernelTable::dropout, x.dim() == 4 ? pixels_of(x) : matrix_of(x), key, x, y);
  return y;
}

}  // namespace

OperatorPtr make(const Dropout& attributes, const OperatorPlace&) {
  return make_unary(
      [keep = 1.0 - attributes.p](const at::Tensor& x, const Tensors&, const PassContext& context) {
        return context.mode == Mode::train ? masked(x, keep, context) : x;
      },
      [keep = 1.0 - attributes.p](const at::Tensor& dy, const Tensors&,
                                  const PassContext& context) {
        return masked(dy, keep, context);
      });
}

}  // namespace heteroperf
