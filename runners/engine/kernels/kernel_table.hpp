#pragma once

#include <cstdint>
#include <vector>

namespace heteroperf {

/// Storage type of a kernel's tensors. bfloat16 is computed in float.
enum class Element { float32, float64, bfloat16 };

/// Element-wise functions of one value; vector_math.hpp has the formulas.
enum class ActivationKind { relu, silu, tanh, gelu_erf, gelu_tanh };
/// A gradient overwrites what is in its buffer (the first micro-batch) or is added to it.
enum class Accumulation { overwrite, add };

/// Rows [begin, end) of a row-major matrix of `columns` columns; one thread's share.
struct RowRange {
  std::int64_t begin = 0, end = 0, columns = 0;
};

/// Window geometry of a convolution or pooling over channels-last images {batch, height, width,
/// channels}. `in` and `out` are {height, width}.
struct Window {
  std::int64_t channels = 0;
  std::int64_t in[2] = {0, 0}, out[2] = {0, 0};
  std::int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, padding[2] = {0, 0};
};

/// The numbers that a dropout mask is a function of, and how the flat batch is cut into samples.
struct DropoutKey {
  std::uint64_t seed = 0, step = 0, node = 0, first_sample = 0;
  std::int64_t sample_elements = 0;
  double keep = 1.0;  ///< probability

  /// A draw of 32 bits is kept when it is at most keep · 2³² − 1.
  constexpr std::uint32_t threshold() const {
    return static_cast<std::uint32_t>(keep * 0x1.0p32 - 1.0);
  }
};

/// Row-wise loss parameters: gradient = (softmax − smoothed one-hot) · scale.
struct CrossEntropyTerms {
  double label_smoothing = 0.0, scale = 1.0;
  /// The columns are classes first … of `classes` (0: as many as there are columns).
  std::int64_t first = 0, classes = 0;
};

/// Factors of an AdamW update.
struct AdamwScalars {
  double gradient_scale = 1;  ///< clipping: g = scale · stored gradient
  double keep = 1;            ///< 1 − learning rate · decay
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double step = 0;  ///< learning rate / (1 − β1^t)
  double root = 1;  ///< 1 / √(1 − β2^t)
};
/// Factors of an update by stochastic gradient descent with momentum.
struct SgdScalars {
  double gradient_scale = 1, decay = 0, momentum = 0, learning_rate = 0;
};

/// Packed rows {(heads + 2 kv_heads) · head_dim}; `turned` = heads + kv_heads heads are rotated.
struct RotaryLayout {
  std::int64_t length = 0, turned = 0, head_dim = 0;
  bool inverse = false;
};

/// Element-wise and row-wise kernels on plain memory, for one Element type and one instruction set.
///
/// `void*` data are of the table's element type; `Kept*`, also passed as void*, are its
/// accumulation type (float for float32 and bfloat16, double for float64). Ranges of one call never
/// overlap, so calls on disjoint ranges may run at the same time. Null pointers mark optional
/// parts. Matrices are row-major and contiguous. "partial" arguments are Kept arrays that the call
/// overwrites with sums over its own rows.
struct KernelTable {
#define HETEROPERF_KERNEL_ROW(name, ...) void (*name)(__VA_ARGS__);
#include "runners/engine/kernels/kernel_rows.inc"
#undef HETEROPERF_KERNEL_ROW
};

/// The names of the table's members, in their order.
constexpr const char* kernel_names[] = {
#define HETEROPERF_KERNEL_ROW(name, ...) #name,
#include "runners/engine/kernels/kernel_rows.inc"
#undef HETEROPERF_KERNEL_ROW
};

/// The tables themselves, one per build of variant.cpp; the wider ones exist on x86-64 only. The
/// reference (reference.cpp) computes in float64, element by element; what lies in memory between
/// two kernels, and what a kernel adds to, has the types of every table.
const KernelTable& reference_kernels(Element element);
const KernelTable& baseline_kernels(Element element);
const KernelTable& avx2_kernels(Element element);
const KernelTable& avx512_kernels(Element element);

/// One operand of a product: rows of A or columns of B are its lines, which are as long as the
/// extent that is summed over. Strides are in elements.
struct ProductOperand {
  const float* data = nullptr;
  std::int64_t line_stride = 0, inner_stride = 0;
};
/// Some of the terms of a tile's sums: `length` columns of A meet as many rows of B. Both begin so
/// many elements behind the tile's `a` and `b`.
struct ProductSegment {
  std::int64_t a = 0, b = 0, length = 0;
};
/// A tile of C, and what it is the product of. Rows or columns of A are a_stride elements apart,
/// rows of B b_stride, of which each must have a whole tile's columns to be read, and rows of C
/// c_stride.
struct ProductTile {
  const ProductSegment* segments = nullptr;
  std::int64_t count = 0;
  const float* a = nullptr;
  std::int64_t a_stride = 0;
  const float* b = nullptr;
  std::int64_t b_stride = 0;
  float* c = nullptr;
  std::int64_t c_stride = 0, rows = 0, columns = 0;
};

/// Rows of scores are passed in blocks of so many.
constexpr int score_lanes = 16;

/// Scores {rows, keys} of one head, of queries `first` and following, in rows `stride` apart, which
/// is a multiple of score_lanes: what lies behind a row's keys may be overwritten.
struct ScoreRows {
  std::int64_t first = 0, rows = 0, keys = 0, stride = 0;
  bool causal = false;
  float scale = 1, slope = 0;
};

/// Products of float32 on the host, for one instruction set; see product_kernels.hpp. A tile has up
/// to tile_rows rows; one with more than tile_columns columns computes the first ones.
struct ProductKernels {
  std::int64_t tile_rows, tile_columns;
  /// Packs lines into panels {inner, width}, one behind the other; zeros fill up the last one.
  void (*pack)(const ProductOperand&, std::int64_t lines, std::int64_t inner, std::int64_t width,
               float* packed);
  /// c (+)= a · b, where A lies row by row, or column by column, as packed panels do.
  void (*multiply_rows)(const ProductTile&, Accumulation);
  void (*multiply_columns)(const ProductTile&, Accumulation);
  /// The softmax of attention in place on rows of scores; see attention_kernels.hpp.
  void (*softmax_rows)(const ScoreRows&, float* scores, float* log_sums);
  void (*softmax_again)(const ScoreRows&, float* scores, const float* log_sums);
  void (*softmax_backward)(const ScoreRows&, const float* probabilities, float* gradients,
                           const float* output, const float* output_gradient, std::int64_t width,
                           std::int64_t output_stride);
};
const ProductKernels& baseline_products();
const ProductKernels& avx2_products();
const ProductKernels& avx512_products();

/// A build of the kernels for one instruction set.
struct KernelVariant {
  const char* name;  ///< "avx512", "avx2" or "base", as `--device cpu:NAME` has it
  const KernelTable& (*kernels)(Element);
  const ProductKernels& (*products)();
};
/// Those that this processor can run, the fastest first.
std::vector<KernelVariant> kernel_variants();
}  // namespace heteroperf
