// Matrix products of the operators. All of them pass through product_into(), which takes the way
// that the training has chosen for the shape (products.hpp): LibTorch's own product, oneDNN's, or
// the one that stands below.
//
// Our product cuts B into chunks of at most 2 MiB, which a cache that the cores share can keep, and
// packs one after the other. Then the threads take blocks of rows of A, small enough for a cache of
// their own, and multiply each by all of the chunk (the loops of Goto and van de Geijn 2008,
// doi:10.1145/1356052.1356053; the innermost ones are kernels/product_kernels.hpp). Sums run along
// the chunks in order and are never split between threads, so their bits depend on the shape alone.
//
// Ways other than LibTorch's are below its dispatcher, where the witness of the operation count
// (probe/operation_observer.cpp) would not see them. So every product is reported to it under a
// name of ours, and what lies inside is passed over.
#include "runners/engine/operators/product.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <new>

#include "metrics/base/error.hpp"
#include "runners/engine/kernels/kernel_table.hpp"

// oneDNN's product has no header in LibTorch's packages. A LibTorch without it leaves the name
// null.
namespace at::native {
[[gnu::weak]] void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& out, float beta,
                                 float alpha);
}

namespace heteroperf {
namespace {

// ---------------------------------------------------------------- our product

constexpr std::int64_t chunk_columns = 1024;
/// A panel of B as long as a chunk takes 32 KiB, the nearest cache of most processors.
constexpr std::int64_t panel_elements = 8192;
/// Elements of B one thread should pack before a second one is worth waking.
constexpr std::int64_t packed_per_thread = std::int64_t{1} << 16;
/// Rows of a block of A: a whole number of tiles of all instruction sets.
constexpr std::int64_t block_rows = 84;

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

/// One chunk of B with the part of A that meets it.
struct Chunk {
  std::int64_t column, columns, inner, inner_extent;
};

/// The operands as the kernels see them: rows of A and columns of B are lines.
struct OwnProduct {
  OwnProduct(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right)
      : kernels(product_kernels()),
        rows(left.size(0)),
        columns(right.size(1)),
        inner(left.size(1)),
        a{left.const_data_ptr<float>(), left.stride(0), left.stride(1)},
        b{right.const_data_ptr<float>(), right.stride(1), right.stride(0)},
        c(out.mutable_data_ptr<float>()),
        stride(out.stride(0)) {}

  void run(Accumulation accumulation) const {
    static thread_local PackedMemory memory;
    float* const packed = memory.room_for(panels(std::min(columns, chunk_columns)) *
                                          kernels.tile_columns * std::min(inner, chunk_inner()));
    for (std::int64_t column = 0; column < columns; column += chunk_columns) {
      Accumulation how = accumulation;
      for (std::int64_t k = 0; k < inner; k += chunk_inner()) {
        const Chunk chunk{column, std::min(chunk_columns, columns - column), k,
                          std::min(chunk_inner(), inner - k)};
        pack_b(chunk, packed);
        multiply(chunk, packed, how);
        how = Accumulation::add;
      }
    }
  }

  std::int64_t chunk_inner() const { return panel_elements / kernels.tile_columns; }
  std::int64_t panels(std::int64_t of_columns) const {
    return (of_columns + kernels.tile_columns - 1) / kernels.tile_columns;
  }

  /// Threads share the panels.
  void pack_b(const Chunk& chunk, float* packed) const {
    const std::int64_t width = kernels.tile_columns;
    const std::int64_t grain =
        std::max<std::int64_t>(1, packed_per_thread / (width * chunk.inner_extent));
    at::parallel_for(0, panels(chunk.columns), grain, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first = chunk.column + begin * width;
      const ProductOperand operand{b.data + first * b.line_stride + chunk.inner * b.inner_stride,
                                   b.line_stride, b.inner_stride};
      kernels.pack_b(operand, std::min(end * width, chunk.columns) - begin * width,
                     chunk.inner_extent, packed + begin * width * chunk.inner_extent);
    });
  }

  /// Tasks are blocks of rows; where these are fewer than threads, parts of the columns too.
  void multiply(const Chunk& chunk, const float* packed_b, Accumulation how) const {
    const std::int64_t width = kernels.tile_columns, across = panels(chunk.columns);
    const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
    const std::int64_t parts = std::clamp<std::int64_t>(at::get_num_threads() / blocks, 1, across);
    at::parallel_for(0, blocks * parts, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t row = task / parts * block_rows, part = task % parts;
        const std::int64_t first = across * part / parts * width;
        const std::int64_t last = std::min(across * (part + 1) / parts * width, chunk.columns);
        multiply_block(
            {std::min(block_rows, rows - row), last - first, chunk.inner_extent, stride}, how,
            {a.data + row * a.line_stride + chunk.inner * a.inner_stride, a.line_stride,
             a.inner_stride},
            packed_b + first * chunk.inner_extent, c + row * stride + chunk.column + first);
      }
    });
  }

  /// Rows that fill no tile, and rows that lie as columns in memory, are packed first.
  void multiply_block(ProductBlock block, Accumulation how, ProductOperand left,
                      const float* packed_b, float* out) const {
    if (left.inner_stride == 1) {
      ProductBlock in_place = block;
      in_place.rows -= block.rows % kernels.tile_rows;
      kernels.multiply_rows(in_place, how, left.data, left.line_stride, packed_b, out);
      left.data += in_place.rows * left.line_stride;
      out += in_place.rows * block.stride;
      block.rows -= in_place.rows;
    }
    if (block.rows == 0) return;
    static thread_local PackedMemory memory;
    float* const packed_a = memory.room_for(block_rows * block.inner);
    kernels.pack_a(left, block.rows, block.inner, packed_a);
    kernels.multiply(block, how, packed_a, packed_b, out);
  }

  const ProductKernels& kernels;
  std::int64_t rows, columns, inner;
  ProductOperand a, b;
  float* c;
  std::int64_t stride;
};

void own_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                 Accumulation accumulation) {
  if (out.numel() == 0) return;
  if (a.size(1) == 0) {
    if (accumulation == Accumulation::overwrite) out.zero_();
    return;
  }
  // The kernels write whole vectors of a row: a transposed result is the product the other way
  // round.
  if (out.stride(1) == 1 || out.size(1) == 1) {
    OwnProduct(out, a, b).run(accumulation);
  } else {
    HETEROPERF_EXPECT(out.stride(0) == 1);
    OwnProduct(out.t(), b.t(), a.t()).run(accumulation);
  }
}

// ---------------------------------------------------------------- the library's products

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
  } catch (const c10::Error&) {
    return false;
  }
  const float* const values = out.const_data_ptr<float>();
  return std::all_of(values, values + out.numel(), [](float value) { return value == 2; });
}

// ---------------------------------------------------------------- the way of the calling thread

/// The choices and notes that the scopes of a thread name, and the ways that were looked up since.
struct ThreadProducts {
  const ProductChoices* choices = nullptr;
  std::map<ProductShape, ProductWay> known = {};
  ProductNotes* notes = nullptr;

  ProductWay way_for(const ProductShape& shape) {
    if (choices == nullptr) return ProductWay::mkl;
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
  return {a.size(0), a.size(1), b.size(1), transposed(a), transposed(b)};
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

void product_by(ProductWay way, const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                Accumulation accumulation) {
  at::RecordFunction record(at::RecordScope::FUNCTION);
  const std::array<c10::IValue, 2> operands{a, b};
  if (record.isActive()) {
    record.before("heteroperf::product",
                  c10::ArrayRef<const c10::IValue>(operands.data(), operands.size()));
  }
  switch (way) {
    case ProductWay::mkl:
      return library_product(out, a, b, accumulation);
    case ProductWay::onednn:
      return onednn_product(out, a, b, accumulation);
    case ProductWay::own:
      return own_product(out, a, b, accumulation);
  }
}

void product_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                  Accumulation accumulation) {
  if (!has_choice(out, a, b)) return product_by(ProductWay::mkl, out, a, b, accumulation);
  const ProductShape shape = shape_of(a, b);
  if (thread_products.notes != nullptr) return thread_products.notes->note(shape);
  product_by(thread_products.way_for(shape), out, a, b, accumulation);
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  product_into(out, a, b, Accumulation::overwrite);
  return out;
}

}  // namespace heteroperf
