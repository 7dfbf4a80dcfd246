#include "metrics/operator_counts.hpp"

#include <initializer_list>

#include "metrics/base/error.hpp"

// Every convention is a set of formulas over the shapes of one operator. `strict` is what the
// program measures by; the others repeat what AIPerf, PaLM and Megatron-LM print, so that results
// can be held against theirs (metrics/README.md has all formulas and their sources).

namespace heteroperf {
namespace {

// In the order of the enum.
constexpr std::array descriptions{
    "2 per multiply-add of matmul, convolution and attention; true backward; causal T^2/2 pairs",
    "the AIPerf profiler's formulas, bit for bit; image classifiers without attention",
    "multiply-adds of the forward pass (matmul, convolution, full attention); no backward",
    "6N + 12LHQT per token (PaLM, appendix B), full attention; language models",
    "Megatron-LM before March 2025: 3 x forward matmuls, full attention; language models",
    "Megatron-LM since March 2025: 3 x forward matmuls, half attention; language models"};

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;  // clang 14 does not find it by itself

Ops product(std::initializer_list<std::uint64_t> factors) {
  Ops result(1);
  for (std::uint64_t factor : factors) result *= factor;
  return result;
}

std::uint64_t group_channels(const Conv2dShape& shape) {
  HETEROPERF_EXPECT(shape.groups > 0 && shape.in_channels % shape.groups == 0);
  return shape.in_channels / shape.groups;
}

Ops conv2d_weights(const Conv2dShape& shape) {
  return product(
      {shape.kernel_height, shape.kernel_width, group_channels(shape), shape.out_channels});
}

AttentionShape with_mask(AttentionShape shape, AttentionMask mask) {
  shape.mask = mask;
  return shape;
}

/// The formulas of AIPerf's `scripts/reports/profiler.py`, per image. An addition, a multiplication
/// and a comparison weigh 1, a division and a square root 4, an exponential 8.
class AiperfRules {
 public:
  explicit AiperfRules(ConvolutionOrder order) : order_(order) {}

  // Each gradient costs as much as the forward pass; the update adds 2 per weight.
  PassOps operator()(const Conv2dShape& s) const {
    const std::uint64_t outputs = s.out_height * s.out_width;
    const std::uint64_t per_weight = order_ == ConvolutionOrder::first ? 2 * outputs : 4 * outputs;
    return {conv2d_ops(s), conv2d_weights(s) * (per_weight + 2)};
  }
  PassOps operator()(const GemmShape& s) const {
    if (s.rows != 1) return {};
    const Ops forward = gemm_ops(s);
    return {forward, 2 * forward + product({2, s.inner + 1, s.columns})};
  }
  PassOps operator()(const ElementwiseShape& s) const {
    switch (s.kind) {
      case ElementwiseKind::batch_norm:
        return {Ops(7) * s.elements, Ops(29 + 7)};
      case ElementwiseKind::relu:
      case ElementwiseKind::add:
        return {Ops(s.elements), Ops(0)};
      case ElementwiseKind::moved:
        return {Ops(0), Ops(0)};
      case ElementwiseKind::other:
        return {};
    }
    return {};
  }
  PassOps operator()(const MaxPoolShape& s) const {
    return {product({s.in_elements, s.kernel_area}) / s.stride_area, Ops(0)};
  }
  PassOps operator()(const GlobalPoolShape& s) const {
    return {product({s.positions - 1, s.channels}) + product({4, s.channels}), Ops(0)};
  }
  PassOps operator()(const SoftmaxShape& s) const {
    return {product({8 + 1 + 4, s.classes}) - Ops(1), Ops(0)};
  }
  PassOps operator()(const AttentionShape&) const { return {}; }
  PassOps operator()(const ContrastShape&) const { return {}; }

 private:
  ConvolutionOrder order_;
};

Ops contrast_ops(const ContrastShape& s) { return product({2, s.features, s.samples}); }

PassOps forward_and_twice(Ops forward) { return {forward, 2 * forward}; }

/// The matrix products of the forward pass; `mask` replaces the attention's own.
Ops forward_products(const OperatorShape& shape, AttentionMask mask) {
  return std::visit(Match{[](const GemmShape& s) { return gemm_ops(s); },
                          [](const Conv2dShape& s) { return conv2d_ops(s); },
                          [mask](const AttentionShape& s) {
                            return 2 * attention_product_ops(with_mask(s, mask));
                          },
                          [](const ContrastShape& s) { return contrast_ops(s); },
                          [](const auto&) { return Ops(); }},
                    shape);
}

/// Multiply-adds of the forward pass: half of the operations, attention taken as full.
PassOps mac_ops(const OperatorShape& shape) {
  return {forward_products(shape, AttentionMask::full) / 2, std::nullopt};
}

/// PaLM's 6N + 12LHQT per token: a third in the forward pass, two thirds in the backward pass.
PassOps palm_ops(const OperatorUse& use) {
  if (!use.tokens) return {};
  Ops forward = product({2, use.palm_parameters, *use.tokens});
  if (const auto* attention = std::get_if<AttentionShape>(&use.shape)) {
    forward += 2 * attention_product_ops(with_mask(*attention, AttentionMask::full));
  }
  return forward_and_twice(forward);
}

/// Megatron-LM's counts: every matrix product of the forward pass three times.
PassOps megatron_ops(const OperatorUse& use, AttentionMask mask) {
  if (!use.tokens) return {};
  return forward_and_twice(forward_products(use.shape, mask));
}

}  // namespace

const char* description(Convention convention) {
  return descriptions[static_cast<std::size_t>(convention)];
}

std::optional<Ops> PassOps::train() const {
  if (!forward || !backward) return std::nullopt;
  return *forward + *backward;
}

Ops gemm_ops(const GemmShape& s) { return product({2, s.rows, s.inner, s.columns}); }

Ops conv2d_ops(const Conv2dShape& s) { return conv2d_weights(s) * 2 * s.out_height * s.out_width; }

Ops attention_product_ops(const AttentionShape& s) {
  const std::uint64_t per_pair = s.mask == AttentionMask::causal ? 1 : 2;
  return product({per_pair, s.heads, s.head_dim, s.length, s.keys > 0 ? s.keys : s.length});
}

StrictOps strict_ops(const OperatorShape& shape, InputGradient input_gradient,
                     WeightGradient weight_gradient) {
  const bool needed = input_gradient == InputGradient::needed;
  const bool trained = weight_gradient == WeightGradient::needed;
  const auto weighted = [&](Ops forward) {
    return StrictOps{forward, needed ? forward : Ops(), trained ? forward : Ops()};
  };
  return std::visit(Match{[&](const GemmShape& s) { return weighted(gemm_ops(s)); },
                          [&](const Conv2dShape& s) { return weighted(conv2d_ops(s)); },
                          [&](const AttentionShape& s) {
                            const Ops each = attention_product_ops(s);
                            return StrictOps{2 * each, needed ? 4 * each : Ops(), Ops()};
                          },
                          [&](const ContrastShape& s) {
                            const Ops each = contrast_ops(s);
                            return StrictOps{each, needed ? 2 * each : Ops(), Ops()};
                          },
                          [](const auto&) { return StrictOps(); }},
                    shape);
}

Ops padding_ops(const OperatorShape& shape, InputGradient input_gradient,
                WeightGradient weight_gradient) {
  const auto* conv = std::get_if<Conv2dShape>(&shape);
  if (conv == nullptr || conv->padded_taps == 0) return Ops();
  const std::uint64_t taps =
      conv->kernel_height * conv->kernel_width * conv->out_height * conv->out_width;
  // Each tap of a plane costs the same, so the division leaves nothing.
  return strict_ops(shape, input_gradient, weight_gradient).train() / taps * conv->padded_taps;
}

namespace {

/// The conventions of others, as if the weight were trained.
PassOps published_ops(const OperatorUse& use, Convention convention) {
  switch (convention) {
    case Convention::strict:
      break;
    case Convention::aiperf:
      return std::visit(AiperfRules(use.order), use.shape);
    case Convention::mac:
      return mac_ops(use.shape);
    case Convention::palm:
      return palm_ops(use);
    case Convention::megatron_full:
      return megatron_ops(use, AttentionMask::full);
    case Convention::megatron_causal:
      return megatron_ops(use, AttentionMask::causal);
  }
  return {};
}

}  // namespace

PassOps count_ops(const OperatorUse& use, Convention convention) {
  if (convention == Convention::strict) {
    const StrictOps ops = strict_ops(use.shape, use.input_gradient, use.weight_gradient);
    return {ops.forward, ops.backward()};
  }
  PassOps ops = published_ops(use, convention);
  if (use.weight_gradient == WeightGradient::none) ops.backward.reset();
  return ops;
}

}  // namespace heteroperf
