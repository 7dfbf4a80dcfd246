#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "metrics/convention.hpp"
#include "metrics/ops.hpp"

namespace heteroperf {

/// The shapes of operators, for one sample; every count is proportional to the samples.

/// {rows, inner} times {inner, columns}.
struct GemmShape {
  std::uint64_t rows = 0, inner = 0, columns = 0;
};
/// Extents of the kernel and of the output; each output sees in_channels / groups channels.
struct Conv2dShape {
  std::uint64_t in_channels = 0, out_channels = 0, groups = 1;
  std::uint64_t kernel_height = 1, kernel_width = 1;
  std::uint64_t out_height = 0, out_width = 0;
};
enum class AttentionMask { full, causal };
/// Q Kᵀ and the product with V. Shared key heads change nothing: every query head does its own
/// products.
struct AttentionShape {
  std::uint64_t heads = 0, head_dim = 0;
  std::uint64_t length = 0;  ///< queries and keys
  AttentionMask mask = AttentionMask::full;
};
/// What strict counts as 0 and aiperf tells apart. `moved` only moves or drops elements (concat,
/// flatten, dropout); `other` is unknown to AIPerf.
enum class ElementwiseKind { batch_norm, relu, add, moved, other };
struct ElementwiseShape {
  ElementwiseKind kind = ElementwiseKind::other;
  std::uint64_t elements = 0;
};
struct MaxPoolShape {
  std::uint64_t in_elements = 0;  ///< channels · height · width
  std::uint64_t kernel_area = 1, stride_area = 1;
};
struct GlobalPoolShape {
  std::uint64_t channels = 0, positions = 0;
};
struct SoftmaxShape {
  std::uint64_t classes = 0;
};

using OperatorShape = std::variant<GemmShape, Conv2dShape, AttentionShape, ElementwiseShape,
                                   MaxPoolShape, GlobalPoolShape, SoftmaxShape>;

/// Whether training needs the gradient with respect to the operator's input.
enum class InputGradient { needed, none };
/// AIPerf gives the first convolution of its layer list no input gradient.
enum class ConvolutionOrder { first, later };

/// An operator in its place. Parameters and tokens only serve the language model conventions.
struct OperatorUse {
  OperatorShape shape;
  InputGradient input_gradient = InputGradient::needed;
  ConvolutionOrder order = ConvolutionOrder::later;
  /// The operator's share of PaLM's N: its trainable elements, 0 for learned position, type and
  /// class-token tables (their rows are added, never multiplied).
  std::uint64_t palm_parameters = 0;
  /// Tokens of one sample; absent outside language models.
  std::optional<std::uint64_t> tokens;
};

/// Strict operations, the passes apart: the planner and the pipeline schedule B and W separately.
struct StrictOps {
  Ops forward, input_gradient, weight_gradient;
  Ops backward() const { return input_gradient + weight_gradient; }
  Ops train() const { return forward + backward(); }
};

/// Counts under one convention; absent where the convention does not define them.
struct PassOps {
  std::optional<Ops> forward, backward;
  /// Absent unless both passes are there.
  std::optional<Ops> train() const;
};

/// 2 · rows · inner · columns.
Ops gemm_ops(const GemmShape& shape);
/// 2 · (in_channels / groups) · kernel · outputs. Also the cost of each of its gradients.
Ops conv2d_ops(const Conv2dShape& shape);
/// One of the attention's products: 2 · heads · head_dim · pairs, where pairs are T² (full) or T²/2
/// (causal), the latter as heads · head_dim · T², whole for odd T too. Forward is 2 products,
/// backward 4.
Ops attention_product_ops(const AttentionShape& shape);

/// Tensor operations only; everything but the first three shapes is 0. Recomputation is never part.
StrictOps strict_ops(const OperatorShape& shape, InputGradient input_gradient);

/// Forward and backward of one sample under any convention (formulas: metrics/README.md).
PassOps count_ops(const OperatorUse& use, Convention convention);

}  // namespace heteroperf
