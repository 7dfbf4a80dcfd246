// Batch norm over channels-last images. Moments are made per block of rows and joined by Chan's
// formula, so their bits do not depend on the number of threads. Relu and residual sum are fused,
// because each alone would read and write the whole tensor once more.
//
// In training the statistics are those of the micro-batch, and the running ones follow them by the
// momentum, except in a recomputed pass, which must not count the same data twice. The whole norm
// is one line per channel, y = x · scale + shift. The backward pass needs two sums per channel, Σ g
// and Σ g x̂, which are at the same time the gradients of bias and weight; so B and W together make
// them once. The gradient behind a ReLU is masked on the way: by the output, or by computing the
// line again.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

/// Per channel over the pixels of a micro-batch; then + residual and relu when fused.
/// Saves x, mean, 1/deviation; with a relu also what tells its mask: scale and shift per channel,
/// or behind a residual the output (which the next operator keeps anyway).
class BatchNormOperator final : public Operator {
 public:
  BatchNormOperator(const BatchNorm& attributes, std::int64_t channels, at::ScalarType type,
                    BatchNormFusion fusion)
      : attributes_(attributes),
        fusion_(fusion),
        running_mean_(at::zeros({channels}, at::TensorOptions().dtype(accumulation_type(type)))),
        running_variance_(at::ones({channels}, running_mean_.options())) {}

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext& context) override {
    const at::Tensor x = canonical(inputs[0]);
    follow(x.device());
    const bool train = context.mode == Mode::train;
    Statistics s;
    if (train) {
      s = measure(x);
      if (context.pass == Pass::first) update_running(s, pixels_of(x).rows);
    } else {
      s = {running_mean_, running_variance_};
    }
    const Affine affine = affine_of(x, s, parameters);
    const at::Tensor residual = adds_residual() ? canonical(inputs[1]) : at::Tensor();
    at::Tensor y = apply(x, affine, residual);
    saved.clear();
    if (train) saved = {x, s.mean, affine.rstd};
    if (train && fusion_ == BatchNormFusion::relu) {
      saved.insert(saved.end(), {affine.scale, affine.shift});
    }
    if (train && adds_residual()) saved.push_back(y);
    return y;
  }

  Tensors buffers() const override { return {running_mean_, running_variance_}; }

 private:
  void gradients(const BackwardPass& pass) override {
    const bool inputs = pass.wants(0) || (adds_residual() && pass.wants(1));
    if (!inputs && pass.parameter_gradients == nullptr) return;
    const at::Tensor g = canonical(pass.output_gradient);
    const Sums sums = sums_of(g, pass.saved);
    if (pass.parameter_gradients != nullptr) sums.store(pass.context, *pass.parameter_gradients);
    if (inputs) put_gradients(g, pass.parameters, pass.saved, sums, *pass.sink);
  }

  struct Statistics {
    at::Tensor mean, variance;
  };
  struct Affine {
    at::Tensor rstd, scale, shift;
  };
  /// Σ g and Σ g x̂ per channel: the gradients of bias and weight.
  struct Sums {
    ColumnPartials g, g_xhat;
    void store(const PassContext& context, Tensors& gradients) const {
      g_xhat.combine_into(gradients[0], context.accumulation);
      g.combine_into(gradients[1], context.accumulation);
    }
  };

  bool adds_residual() const { return fusion_ == BatchNormFusion::residual_relu; }

  /// Mean and biased variance of every channel over this micro-batch.
  static Statistics measure(const at::Tensor& x) {
    const RowBlocks blocks(pixels_of(x));
    const ColumnPartials means(blocks, x), deviations(blocks, x);
    blocks.run(&KernelTable::moments, x, &means, &deviations);
    const std::int64_t channels = x.size(1);
    Statistics s{empty_accumulators({channels}, x), empty_accumulators({channels}, x)};
    run_columns(&KernelTable::combine_moments, Matrix(blocks.count, channels, x),
                blocks.matrix.rows, blocks.rows_per_block, means.values(), deviations.values(),
                s.mean, s.variance);
    return s;
  }

  // Running statistics are made on the host: the device is known with the first input.
  void follow(at::Device device) {
    if (running_mean_.device() == device) return;
    running_mean_ = running_mean_.to(device);
    running_variance_ = running_variance_.to(device);
  }

  // The running variance is the unbiased one, as LibTorch's.
  void update_running(const Statistics& s, std::int64_t rows) {
    const double m = attributes_.momentum;
    const double unbiased =
        rows > 1 ? static_cast<double>(rows) / static_cast<double>(rows - 1) : 1.0;
    running_mean_.mul_(1.0 - m).add_(s.mean, m);
    running_variance_.mul_(1.0 - m).add_(s.variance, m * unbiased);
  }

  /// The whole norm as one line per channel: y = x · scale + shift.
  Affine affine_of(const at::Tensor& x, const Statistics& s, const Tensors& parameters) const {
    const std::int64_t channels = x.size(1);
    const auto vector = [&] { return empty_accumulators({channels}, x); };
    Affine affine{vector(), vector(), vector()};
    run_columns(&KernelTable::batch_norm_affine, Matrix(1, channels, x), attributes_.eps, s.mean,
                s.variance, parameters[0], parameters[1], affine.rstd, affine.scale, affine.shift);
    return affine;
  }

  at::Tensor apply(const at::Tensor& x, const Affine& affine, const at::Tensor& residual) const {
    at::Tensor y = uninitialised_like(x);
    run_kernel(&KernelTable::scale_shift, pixels_of(x), x, affine.scale, affine.shift,
               fusion_ != BatchNormFusion::none, residual, y);
    return y;
  }

  /// The backward kernels derive the relu's mask from it; see KernelTable::batch_norm_sums.
  struct MaskSource {
    at::Tensor y, scale, shift;
  };
  MaskSource mask_source(const Tensors& saved) const {
    if (adds_residual()) return {saved[3], {}, {}};
    if (fusion_ == BatchNormFusion::none) return {};
    return {{}, saved[3], saved[4]};
  }

  /// Sums over all pixels, needed by the parameters' gradients and by the input's.
  Sums sums_of(const at::Tensor& dy, const Tensors& saved) const {
    const RowBlocks blocks(pixels_of(dy));
    Sums sums{ColumnPartials(blocks, dy), ColumnPartials(blocks, dy)};
    const MaskSource mask = mask_source(saved);
    const ColumnPartials *g = &sums.g, *g_xhat = &sums.g_xhat;
    blocks.run(&KernelTable::batch_norm_sums, dy, saved[0], mask.y, mask.scale, mask.shift,
               saved[1], saved[2], g, g_xhat);
    return sums;
  }

  /// The input's gradient is one line per element; the residual's is the gradient behind the relu.
  void put_gradients(const at::Tensor& dy, const Tensors& parameters, const Tensors& saved,
                     const Sums& sums, GradientSink& sink) const {
    const std::int64_t channels = dy.size(1);
    const auto vector = [&] { return empty_accumulators({channels}, dy); };
    const at::Tensor a = vector(), b = vector(), c = vector();
    run_columns(&KernelTable::batch_norm_coefficients, Matrix(1, dy.size(1), dy),
                pixels_of(dy).rows, sums.g.combined(), sums.g_xhat.combined(), saved[2],
                parameters[0], a, b, c);
    at::Tensor dx = uninitialised_like(dy);
    at::Tensor residual;
    if (adds_residual() && sink.wanted(1)) residual = uninitialised_like(dy);
    const MaskSource mask = mask_source(saved);
    run_kernel(&KernelTable::batch_norm_backward, pixels_of(dy), dy, saved[0], mask.y, mask.scale,
               mask.shift, saved[1], a, b, c, dx, residual);
    if (sink.wanted(0)) sink.put(0, std::move(dx));
    if (residual.defined()) sink.put(1, std::move(residual));
  }

  BatchNorm attributes_;
  BatchNormFusion fusion_;
  at::Tensor running_mean_, running_variance_;
};

}  // namespace

OperatorPtr make(const BatchNorm& attributes, const OperatorPlace& place, BatchNormFusion fusion) {
  return std::make_unique<BatchNormOperator>(attributes, place.node.output[0], place.type, fusion);
}

}  // namespace heteroperf
