#pragma once

#include <ATen/core/Tensor.h>

#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/products.hpp"

namespace heteroperf {

/// The three passes of a convolution (cross-correlation) without its bias, each by any way. Images
/// x {B, C, H, W}, results y {B, O, OH, OW} and their gradients are canonical, weights {O, C /
/// groups, kh, kw}. Ways other than LibTorch's are for one group on the host, ours for float32; of
/// 1x1 windows LibTorch's weight_gradient is not to be taken on the host (offers()).
struct Convolution {
  Window window;
  std::int64_t groups = 1;

  /// y.
  at::Tensor forward(ProductWay way, const at::Tensor& x, const at::Tensor& weight) const;
  /// The gradient of x, whose extents alone count.
  at::Tensor input_gradient(ProductWay way, const at::Tensor& dy, const at::Tensor& weight,
                            const at::Tensor& x) const;
  /// gradient (+)= that of the weights.
  void weight_gradient(ProductWay way, const at::Tensor& dy, const at::Tensor& x,
                       const at::Tensor& gradient, Accumulation accumulation) const;
};

}  // namespace heteroperf
