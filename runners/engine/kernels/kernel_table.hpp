#pragma once

#include <cstdint>

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

/// The parts of y = relu?(x · scale + shift + residual?) that a batch norm has.
struct BatchNormEpilogue {
  bool relu = false;
  const void* residual = nullptr;  ///< same shape as x, or null
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

/// Packed rows {(heads + 2 kv_heads) · head_dim}; `turned` = heads + kv_heads heads are rotated.
struct RotaryLayout {
  std::int64_t length = 0, turned = 0, head_dim = 0;
  bool inverse = false;
};

/// Element-wise and row-wise kernels on plain memory, for one Element type and one instruction set.
///
/// `void*` data are of the table's element type; `Acc*`, also passed as void*, are its accumulation
/// type (float for float32 and bfloat16, double for float64). Ranges of one call never overlap, so
/// calls on disjoint ranges may run at the same time. Null pointers mark optional parts. Matrices
/// are row-major and contiguous. "partial" arguments are Acc arrays that the call overwrites
/// with sums over its own rows.
struct KernelTable {
  // Element-wise on `range.columns` × rows; see activation_kernels.hpp.
  /// x += bias (when given, stored back), y = f(x). Without a bias x is only read and may be y.
  void (*activation)(RowRange, ActivationKind, void* x, const void* bias, void* y);
  /// dx = dy · f', from y for relu and tanh and from x for the others; column_sum (partial, may be
  /// null) of dx.
  void (*activation_backward)(RowRange, ActivationKind, const void* dy, const void* kept, void* dx,
                              void* column_sum);
  /// y = silu(gate) · up.
  void (*swiglu)(RowRange, const void* gate, const void* up, void* y);
  void (*swiglu_backward)(RowRange, const void* dy, const void* gate, const void* up, void* dgate,
                          void* dup);
  void (*multiply)(RowRange, const void* a, const void* b, void* y);
  /// y = a + b, then relu when asked.
  void (*add)(RowRange, const void* a, const void* b, bool relu, void* y);
  /// x += bias + residual; either may be null.
  void (*add_bias)(RowRange, void* x, const void* bias, const void* residual);

  // Sums over rows.
  void (*column_sum)(RowRange, const void* x, void* partial);
  /// target[c] (+)= Σ_block partials[block][c] in block order, columns [begin, end).
  void (*combine)(RowRange columns, std::int64_t blocks, const void* partials, Accumulation,
                  void* target);

  // Norms over rows; see norm_kernels.hpp. mean and rstd are Acc, one per row.
  void (*layer_norm)(RowRange, double eps, const void* x, const void* weight, const void* bias,
                     void* y, void* mean, void* rstd);
  /// dx (Accumulation::add: added to what is there) and the partials of the weight and bias
  /// gradients. A null dx (then weight may be null) or null partials are not computed.
  void (*layer_norm_backward)(RowRange, const void* dy, const void* x, const void* weight,
                              const void* mean, const void* rstd, Accumulation, void* dx,
                              void* weight_partial, void* bias_partial);
  void (*rms_norm)(RowRange, double eps, const void* x, const void* weight, void* y, void* rstd);
  void (*rms_norm_backward)(RowRange, const void* dy, const void* x, const void* weight,
                            const void* rstd, Accumulation, void* dx, void* weight_partial);

  // Batch norm over rows (pixels) × columns (channels); see batch_norm_kernels.hpp.
  /// Mean and sum of squared deviations of the rows of this range.
  void (*moments)(RowRange, const void* x, void* mean, void* deviation);
  /// Joins the moments of `blocks` ranges of `block_rows` rows (the last may be shorter).
  void (*combine_moments)(RowRange columns, std::int64_t rows, std::int64_t block_rows,
                          const void* means, const void* deviations, void* mean, void* variance);
  /// rstd = 1 / sqrt(variance + eps), scale = weight · rstd, shift = bias − mean · scale.
  void (*batch_norm_affine)(RowRange columns, double eps, const void* mean, const void* variance,
                            const void* weight, const void* bias, void* rstd, void* scale,
                            void* shift);
  void (*scale_shift)(RowRange, const void* x, const void* scale, const void* shift,
                      BatchNormEpilogue, void* y);
  /// Partials of Σ g and Σ g · (x − mean) · rstd, where g = dy masked by the relu. The mask comes
  /// from y when given, else from x · scale + shift when `scale` is given, else there is none.
  void (*batch_norm_sums)(RowRange, const void* dy, const void* x, const void* y, const void* scale,
                          const void* shift, const void* mean, const void* rstd, void* sum,
                          void* sum_xhat);
  /// a, b, c of the next kernel from the sums over `rows` rows.
  void (*batch_norm_coefficients)(RowRange columns, std::int64_t rows, const void* sum,
                                  const void* sum_xhat, const void* rstd, const void* weight,
                                  void* a, void* b, void* c);
  /// dx = a · g + b · (x − mean) + c per channel; `masked` (may be null) receives g.
  void (*batch_norm_backward)(RowRange, const void* dy, const void* x, const void* y,
                              const void* scale, const void* shift, const void* mean, const void* a,
                              const void* b, const void* c, void* dx, void* masked);

  // Loss; see softmax_kernels.hpp. targets below range.columns; losses and lse are Acc per row.
  void (*cross_entropy)(RowRange, CrossEntropyTerms, const void* logits,
                        const std::int64_t* targets, void* losses, void* lse);
  /// gradient may be logits. A target outside the columns only has no hit among them.
  void (*cross_entropy_backward)(RowRange, CrossEntropyTerms, const void* logits,
                                 const std::int64_t* targets, const void* lse, void* gradient);
  /// The largest of each row; top is Acc per row.
  void (*row_top)(RowRange, const void* x, void* top);
  /// Per row three Acc: Σ exp(x − top), Σ (x − top), and x − top of the target, or 0 when that lies
  /// outside classes first … first + columns − 1.
  void (*softmax_sums)(RowRange, std::int64_t first, const void* logits,
                       const std::int64_t* targets, const void* top, void* sums);

  // Sequences; see sequence_kernels.hpp.
  /// y[r] = table[indices[r]] + positions[r mod length]; positions may be null. Below 0: zeros take
  /// the place of the table's row.
  void (*embedding)(RowRange, const std::int64_t* indices, const void* table, const void* positions,
                    std::int64_t length, void* y);
  /// gradient[indices[r]][c] += dy[r][c] for all `rows` in order and columns [begin, end) of
  /// `width`, but those of indices below 0. gradient is Acc.
  void (*embedding_backward)(RowRange columns, std::int64_t rows, std::int64_t width,
                             const std::int64_t* indices, const void* dy, void* gradient);
  /// y[r] = x[r] + rows[r mod length].
  void (*add_rows)(RowRange, const void* x, const void* rows, std::int64_t length, void* y);
  /// Rows t of gradient (Acc) (+)= Σ_b dy[b · length + t].
  void (*sum_batch)(RowRange, std::int64_t batch, std::int64_t length, const void* dy, Accumulation,
                    void* gradient);
  void (*rotary)(RowRange, RotaryLayout, const void* x, const void* cosine, const void* sine,
                 void* y);
  /// Gathers three matrices of `widths` columns, with row strides, into packed rows.
  void (*pack)(RowRange, const std::int64_t* widths, const void* const* parts, void* packed);

  /// Elements [begin, end) of the flattened batch: y = x · mask / keep.
  void (*dropout)(RowRange elements, DropoutKey, const void* x, void* y);

  // Images, channels last; rows are output pixels or samples; see image_kernels.hpp.
  /// columns[r] = the window of output pixel r as {kernel height, kernel width, channels}.
  void (*im2col)(RowRange pixels, const Window&, const void* x, void* columns);
  /// Adds windows back: overwrites samples [begin, end) of dx.
  void (*col2im)(RowRange samples, const Window&, const void* columns, void* dx);
  /// `taps` (may be null): which element of the window was largest.
  void (*max_pool)(RowRange pixels, const Window&, const void* x, void* y, std::uint8_t* taps);
  void (*max_pool_backward)(RowRange samples, const Window&, const void* dy,
                            const std::uint8_t* taps, void* dx);
  /// y[b] = mean over `pixels` rows.
  void (*mean_rows)(RowRange samples, std::int64_t pixels, const void* x, void* y);
  void (*mean_rows_backward)(RowRange samples, std::int64_t pixels, const void* dy, void* dx);
};

/// The fastest table this CPU can run. Chosen once; HETEROPERF_KERNELS=baseline|avx2|avx512 in the
/// environment picks another that the CPU can run.
const KernelTable& kernels_for(Element element);

/// The tables themselves, one per build of variant.cpp; the wider ones exist on x86-64 only.
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
/// Those of the table that kernels_for() chose.
const ProductKernels& product_kernels();
const ProductKernels& baseline_products();
const ProductKernels& avx2_products();
const ProductKernels& avx512_products();

/// "avx512", "avx2" or "baseline".
const char* kernel_instruction_set();

}  // namespace heteroperf
