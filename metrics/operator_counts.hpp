#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>

#include "metrics/base/name_table.hpp"
#include "metrics/ops.hpp"

namespace heteroperf {

/// The rule that an operation count follows. Counts of different conventions never mix.
enum class Convention { strict, aiperf, mac, palm, megatron_full, megatron_causal };

constexpr std::array<const char*, 6> value_names(Convention) {
  return {"strict", "aiperf", "mac", "palm", "megatron-full", "megatron-causal"};
}
inline constexpr std::array all_conventions{Convention::strict,        Convention::aiperf,
                                            Convention::mac,           Convention::palm,
                                            Convention::megatron_full, Convention::megatron_causal};

/// Returns one line that says what the convention counts, and for which models.
const char* description(Convention convention);

/// The shapes of operators, for one sample. Every count is proportional to the samples.

/// A matrix product {rows, inner} times {inner, columns}.
struct GemmShape {
  std::uint64_t rows = 0, inner = 0, columns = 0;
};
/// The extents of a kernel and of its output; each output sees in_channels / groups channels.
struct Conv2dShape {
  std::uint64_t in_channels = 0, out_channels = 0, groups = 1;
  std::uint64_t kernel_height = 1, kernel_width = 1;
  std::uint64_t out_height = 0, out_width = 0;
  /// Elements of all windows over one channel that lie in the padding around the image.
  std::uint64_t padded_taps = 0;
};
enum class AttentionMask { full, causal };
/// The products Q Kᵀ and with V. Shared key heads change nothing: every query head does its own.
struct AttentionShape {
  std::uint64_t heads = 0, head_dim = 0;
  std::uint64_t length = 0;  ///< queries, and keys unless these are another sequence's
  AttentionMask mask = AttentionMask::full;
  /// Keys of another sequence (cross-attention), or of the whole one of which the queries are a
  /// part; 0: as many as queries. A causal mask leaves half of the pairs.
  std::uint64_t keys = 0;
};
/// One sample's row of the similarities between so many samples: a product over the features.
struct ContrastShape {
  std::uint64_t features = 0, samples = 0;
};
/// Tells apart what strict counts as 0 and aiperf does not. `moved` operators only move or drop
/// elements (concat, flatten, dropout); AIPerf does not know the `other` ones.
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

using OperatorShape = std::variant<GemmShape, Conv2dShape, AttentionShape, ContrastShape,
                                   ElementwiseShape, MaxPoolShape, GlobalPoolShape, SoftmaxShape>;

/// Says if training needs the gradient with respect to the operator's input.
enum class InputGradient { needed, none };
/// The same of its weight: a frozen one needs none.
enum class WeightGradient { needed, none };
/// AIPerf's rule gives the first convolution of its layer list no input gradient.
enum class ConvolutionOrder { first, later };

/// An operator in its place. Parameters and tokens serve only the language model conventions.
struct OperatorUse {
  OperatorShape shape;
  InputGradient input_gradient = InputGradient::needed;
  WeightGradient weight_gradient = WeightGradient::needed;
  ConvolutionOrder order = ConvolutionOrder::later;
  /// The operator's share of PaLM's N: its trainable elements. It is 0 for learned position, type
  /// and class-token tables, whose rows are added and never multiplied.
  std::uint64_t palm_parameters = 0;
  /// The tokens of one sample; absent outside language models.
  std::optional<std::uint64_t> tokens;
};

/// Strict operations, pass by pass: the planner and the pipeline schedule B and W separately.
struct StrictOps {
  Ops forward, input_gradient, weight_gradient;
  Ops backward() const { return input_gradient + weight_gradient; }
  Ops train() const { return forward + backward(); }
};

/// The counts under one convention; absent where the convention does not define them.
struct PassOps {
  std::optional<Ops> forward, backward;
  /// Returns the sum of both passes, or nothing unless both are there.
  std::optional<Ops> train() const;
};

/// Returns 2 · rows · inner · columns.
Ops gemm_ops(const GemmShape& shape);
/// Returns 2 · (in_channels / groups) · kernel · outputs, which is also the cost of each gradient.
Ops conv2d_ops(const Conv2dShape& shape);
/// Returns the operations of one of the attention's products, 2 · heads · head_dim · pairs. A full
/// mask has T² pairs (with other keys queries · keys); a causal one T²/2, counted as heads ·
/// head_dim · T² so that odd T give whole numbers too. The forward pass has 2 products, the
/// backward pass 4.
Ops attention_product_ops(const AttentionShape& shape);

/// Counts tensor operations only: all but the first four shapes are 0. Recomputation never counts.
StrictOps strict_ops(const OperatorShape& shape, InputGradient input_gradient,
                     WeightGradient weight_gradient = WeightGradient::needed);

/// Returns those of strict_ops() in training that multiply with the padding around an image, whose
/// result is known beforehand: whoever skips them computes the same.
Ops padding_ops(const OperatorShape& shape, InputGradient input_gradient,
                WeightGradient weight_gradient = WeightGradient::needed);

/// Counts forward and backward of one sample by any convention (formulas: metrics/README.md). All
/// but strict know only weights that are trained: the backward pass of a frozen one is absent.
PassOps count_ops(const OperatorUse& use, Convention convention);

}  // namespace heteroperf
