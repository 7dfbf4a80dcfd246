#pragma once

#include <ATen/core/Tensor.h>

#include "runners/engine/operators/operator.hpp"
#include "runners/engine/products.hpp"

namespace heteroperf {

/// a {rows, inner} · b {inner, columns}. Operands may be transposed views.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
/// out (+)= a · b. `out` may be a transposed view, or rows of a wider matrix.
void product_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                  Accumulation accumulation);

/// True where this processor and this LibTorch have the way; found out once, by a small product.
bool has_product_way(ProductWay way);

/// The calling thread's products take this way while the scope stands; without one LibTorch's.
class ProductScope {
 public:
  explicit ProductScope(ProductWay way);
  ~ProductScope();
  ProductScope(const ProductScope&) = delete;
  ProductScope& operator=(const ProductScope&) = delete;

 private:
  ProductWay before_;
};

}  // namespace heteroperf
