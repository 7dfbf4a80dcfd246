#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <optional>
#include <set>
#include <vector>

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

/// The way that the calling thread is to take; none where the shape is only noted (ProductNotes),
/// and nothing is to be computed.
std::optional<ProductWay> chosen_way(const ProductShape& shape);

/// While this stands, LibTorch's observers see one operator of this name. What lies inside is part
/// of it and not counted again.
class CountedCall {
 public:
  CountedCall(const char* name, std::initializer_list<c10::IValue> inputs);

 private:
  std::vector<c10::IValue> inputs_;
  at::RecordFunction record_;
};

/// One product by a way, whatever the scope of the thread says.
void product_by(ProductWay way, const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                Accumulation accumulation);

/// The calling thread's products take these ways while the scope stands; without one LibTorch's.
class ProductScope {
 public:
  /// `choices` outlives the scope; null: LibTorch's.
  explicit ProductScope(const ProductChoices* choices);
  ~ProductScope();
  ProductScope(const ProductScope&) = delete;
  ProductScope& operator=(const ProductScope&) = delete;

 private:
  const ProductChoices* before_;
};

/// While this stands, the calling thread's products that have a choice are noted and not made: what
/// they would write is left as it is.
class ProductNotes {
 public:
  ProductNotes();
  ~ProductNotes();
  ProductNotes(const ProductNotes&) = delete;
  ProductNotes& operator=(const ProductNotes&) = delete;

  const std::set<ProductShape>& shapes() const { return shapes_; }
  void note(const ProductShape& shape) { shapes_.insert(shape); }

 private:
  std::set<ProductShape> shapes_;
};

}  // namespace heteroperf
