// Matrix products of the operators. All of them pass through product_into(), which takes the way
// that the training has chosen for the shape (products.hpp): LibTorch's own product, oneDNN's, or
// ours (own_product.cpp).
//
// Ways other than LibTorch's are below its dispatcher, where the witness of the operation count
// (probe/operation_observer.cpp) would not see them. So every product is reported to it under a
// name of ours, and what lies inside is passed over.
#include "runners/engine/operators/product.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <map>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/active_device.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/own_products.hpp"

// oneDNN's product has no header in LibTorch's packages. A LibTorch without it leaves the name
// null.
namespace at::native {
[[gnu::weak]] void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& out, float beta,
                                 float alpha);
}

namespace heteroperf {
namespace {

void library_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                     Accumulation accumulation) {
  at::Tensor result = out;
  accumulation == Accumulation::add ? at::addmm_out(result, result, a, b)
                                    : at::mm_out(result, a, b);
}

void onednn_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                    Accumulation accumulation) {
  // An empty sum leaves its result unwritten.
  if (a.size(1) == 0) return library_product(out, a, b, accumulation);
  at::native::mkldnn_matmul(a, b, out, accumulation == Accumulation::add ? 1 : 0, 1);
}

/// A product whose every element is 16 · ½ · ¼, which any way makes without rounding.
bool onednn_works() {
  if (&at::native::mkldnn_matmul == nullptr) return false;
  constexpr std::int64_t extent = 16;
  const c10::InferenceMode no_tape;
  const at::Tensor a = at::full({extent, extent}, 0.5), b = at::full({extent, extent}, 0.25);
  const at::Tensor out = at::full({extent, extent}, 0.0);
  try {
    onednn_product(out, a, b, Accumulation::overwrite);
  } catch (const std::exception&) {  // LibTorch's, or oneDNN's own
    return false;
  }
  const float* const values = out.const_data_ptr<float>();
  return std::all_of(values, values + out.numel(), [](float value) { return value == 2; });
}

/// The choices and notes that the scopes of a thread name, and the ways that were looked up since.
struct ThreadProducts {
  const ProductChoices* choices = nullptr;
  std::map<ProductShape, ProductWay> known = {};
  ProductNotes* notes = nullptr;

  ProductWay way_for(const ProductShape& shape) {
    if (choices == nullptr) return usual_way(shape);
    const auto [place, is_new] = known.try_emplace(shape, ProductWay::mkl);
    if (is_new) place->second = choices->way_for(shape);
    return place->second;
  }
  void take(const ProductChoices* other) {
    if (other == choices) return;
    known.clear();
    choices = other;
  }
};
thread_local ThreadProducts thread_products;

ProductShape shape_of(const at::Tensor& a, const at::Tensor& b) {
  const auto transposed = [](const at::Tensor& matrix) {
    return matrix.size(1) > 1 && matrix.stride(1) != 1;
  };
  return ProductShape::of_matrices(a.size(0), a.size(1), b.size(1), transposed(a), transposed(b));
}

/// Ways other than LibTorch's own are for these alone.
bool has_choice(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  return !out.is_cuda() && out.scalar_type() == at::kFloat && a.scalar_type() == at::kFloat &&
         b.scalar_type() == at::kFloat;
}

}  // namespace

ProductScope::ProductScope(const ProductChoices* choices) : before_(thread_products.choices) {
  thread_products.take(choices);
}
ProductScope::~ProductScope() { thread_products.take(before_); }

ProductNotes::ProductNotes() {
  HETEROPERF_EXPECT(thread_products.notes == nullptr);
  thread_products.notes = this;
}
ProductNotes::~ProductNotes() { thread_products.notes = nullptr; }

bool has_product_way(ProductWay way) {
  static const bool onednn = onednn_works();
  return way != ProductWay::onednn || onednn;
}

std::optional<ProductWay> chosen_way(const ProductShape& shape) {
  if (thread_products.notes != nullptr) {
    thread_products.notes->note(shape);
    return std::nullopt;
  }
  return thread_products.way_for(shape);
}

CountedCall::CountedCall(const char* name, std::initializer_list<c10::IValue> inputs)
    : record_(at::RecordScope::FUNCTION) {
  if (!record_.isActive()) return;
  inputs_ = inputs;
  record_.before(name, c10::ArrayRef<const c10::IValue>(inputs_.data(), inputs_.size()));
}

void product_by(ProductWay way, const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                Accumulation accumulation) {
  const CountedCall counted("heteroperf::product", {a, b});
  switch (way) {
    case ProductWay::onednn:
      return onednn_product(out, a, b, accumulation);
    case ProductWay::own:
      return own_product(out, a, b, accumulation);
    default:
      return library_product(out, a, b, accumulation);
  }
}

namespace {

/// The terms change places on the way into an emulated chip's product; float64 is LibTorch's.
at::Tensor make_product(const at::Tensor& a, const at::Tensor& b) {
  const CountedCall counted("heteroperf::product", {a, b});
  const auto order = active_device().sum_order(a.size(1));
  return order ? at::mm(a.index_select(1, *order), b.index_select(0, *order)) : at::mm(a, b);
}

}  // namespace

void product_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                  Accumulation accumulation) {
  if (!active_device().makes_as_host(ProductOperator::product)) {
    const at::Tensor result = device_product(ProductOperator::product, a, b, make_product);
    return accumulate(out, result, accumulation);
  }
  if (!has_choice(out, a, b)) return product_by(ProductWay::mkl, out, a, b, accumulation);
  if (const auto way = chosen_way(shape_of(a, b))) product_by(*way, out, a, b, accumulation);
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  product_into(out, a, b, Accumulation::overwrite);
  return out;
}

}  // namespace heteroperf
