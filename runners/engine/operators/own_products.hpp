#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <new>
#include <vector>

#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/products.hpp"

namespace heteroperf {

/// out (+)= a · b of float32 matrices on the host. Operands may be transposed views; `out` may be
/// one, or rows of a wider matrix.
void own_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                 Accumulation accumulation);

/// One pass of a convolution (cross-correlation, one group) of float32 on the host: with images x
/// {B, C, H, W}, weights {O, C, kh, kw} and results y {B, O, OH, OW}, all dense and channels last,
/// `conv` makes y, `conv_input` the gradient of x from y's, `conv_weight` that of the weights,
/// which alone may be added to.
void own_convolution(ProductKind pass, const Window& window, const at::Tensor& x,
                     const at::Tensor& weight, const at::Tensor& y, Accumulation accumulation);

/// Attention of heads over packed rows {queries, keys, values}; a group of heads / kv_heads query
/// heads shares keys and values.
struct OwnAttention {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = false;
  /// By query head: what a score gains per position that its key stands behind the query. Empty:
  /// nothing.
  std::vector<float> slopes = {};
};
/// From float32 rows packed {B, T, (heads + 2 · kv_heads) · head_dim} on the host: out {B, T, heads
/// · head_dim} and the logarithms {B, heads, T} of the softmax's sums. All are contiguous.
void own_attention(const OwnAttention& a, const at::Tensor& packed, const at::Tensor& out,
                   const at::Tensor& log_sums);
/// `gradient` is overwritten by that of the packed rows.
void own_attention_backward(const OwnAttention& a, const at::Tensor& packed, const at::Tensor& out,
                            const at::Tensor& log_sums, const at::Tensor& out_gradient,
                            const at::Tensor& gradient);

/// Memory that a thread keeps for packed operands, aligned as vectors like it.
class PackedMemory {
 public:
  float* room_for(std::int64_t elements) {
    if (elements > elements_) {
      const auto bytes = static_cast<std::size_t>(elements) * sizeof(float);
      memory_.reset(static_cast<float*>(::operator new[](bytes, alignment)));
      elements_ = elements;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Release {
    void operator()(float* memory) const { ::operator delete[](memory, alignment); }
  };
  std::unique_ptr<float[], Release> memory_;
  std::int64_t elements_ = 0;
};

}  // namespace heteroperf
