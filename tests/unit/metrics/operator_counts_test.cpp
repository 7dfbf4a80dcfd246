#include "metrics/operator_counts.hpp"

#include <gtest/gtest.h>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

std::uint64_t between(RandomStream& random, std::uint64_t low, std::uint64_t high) {
  return low + random.below(high - low + 1);
}

/// Multiply-adds of the three passes of a grouped convolution, each by its own loops over a padded
/// input.
struct NaiveConvolution {
  std::uint64_t channels, outputs, groups, kernel_h, kernel_w, stride, padded_h, padded_w;

  std::uint64_t out_h() const { return (padded_h - kernel_h) / stride + 1; }
  std::uint64_t out_w() const { return (padded_w - kernel_w) / stride + 1; }

  std::uint64_t forward() const {
    std::uint64_t count = 0;
    for (std::uint64_t o = 0; o < outputs; ++o)
      for (std::uint64_t y = 0; y < out_h(); ++y)
        for (std::uint64_t x = 0; x < out_w(); ++x)
          for (std::uint64_t c = 0; c < channels; ++c)
            if (same_group(c, o)) count += kernel_h * kernel_w;
    return count;
  }
  std::uint64_t input_gradient() const {
    std::uint64_t count = 0;
    for (std::uint64_t c = 0; c < channels; ++c)
      for (std::uint64_t y = 0; y < padded_h; ++y)
        for (std::uint64_t x = 0; x < padded_w; ++x)
          for (std::uint64_t o = 0; o < outputs; ++o)
            if (same_group(c, o)) count += hits(y, kernel_h, out_h()) * hits(x, kernel_w, out_w());
    return count;
  }
  std::uint64_t weight_gradient() const {
    std::uint64_t count = 0;
    for (std::uint64_t o = 0; o < outputs; ++o)
      for (std::uint64_t c = 0; c < channels / groups; ++c)
        for (std::uint64_t k = 0; k < kernel_h * kernel_w; ++k) count += out_h() * out_w();
    return count;
  }

 private:
  bool same_group(std::uint64_t channel, std::uint64_t output) const {
    return channel / (channels / groups) == output / (outputs / groups);
  }
  /// Kernel offsets through which some output reads position `at`.
  std::uint64_t hits(std::uint64_t at, std::uint64_t kernel, std::uint64_t out) const {
    std::uint64_t count = 0;
    for (std::uint64_t k = 0; k < kernel && k <= at; ++k) {
      if ((at - k) % stride == 0 && (at - k) / stride < out) ++count;
    }
    return count;
  }
};

NaiveConvolution random_convolution(RandomStream& random) {
  NaiveConvolution naive{};
  naive.groups = between(random, 1, 4);
  naive.channels = naive.groups * between(random, 1, 3);
  naive.outputs = naive.groups * between(random, 1, 3);
  naive.kernel_h = between(random, 1, 4);
  naive.kernel_w = between(random, 1, 4);
  naive.stride = between(random, 1, 3);
  naive.padded_h = naive.kernel_h + random.below(6);
  naive.padded_w = naive.kernel_w + random.below(6);
  return naive;
}

Conv2dShape shape_of(const NaiveConvolution& naive) {
  return {naive.channels, naive.outputs, naive.groups, naive.kernel_h,
          naive.kernel_w, naive.out_h(), naive.out_w()};
}

TEST(StrictOps, ConvolutionEqualsNaiveLoopsForEveryPass) {
  RandomStream random(7);
  for (int i = 0; i < 300; ++i) {
    const NaiveConvolution naive = random_convolution(random);
    const StrictOps ops = strict_ops(shape_of(naive), InputGradient::needed);
    EXPECT_EQ(ops.forward, Ops(2 * naive.forward()));
    EXPECT_EQ(ops.input_gradient, Ops(2 * naive.input_gradient()));
    EXPECT_EQ(ops.weight_gradient, Ops(2 * naive.weight_gradient()));
  }
}

TEST(StrictOps, GemmEqualsNaiveLoops) {
  RandomStream random(8);
  for (int i = 0; i < 100; ++i) {
    const GemmShape shape{between(random, 1, 6), between(random, 1, 6), between(random, 1, 6)};
    std::uint64_t count = 0;
    for (std::uint64_t r = 0; r < shape.rows; ++r)
      for (std::uint64_t c = 0; c < shape.columns; ++c)
        for (std::uint64_t k = 0; k < shape.inner; ++k) ++count;
    const StrictOps ops = strict_ops(shape, InputGradient::needed);
    EXPECT_EQ(ops.forward, Ops(2 * count));
    EXPECT_EQ(ops.backward(), Ops(4 * count));
    EXPECT_EQ(ops.train(), Ops(6 * count));
  }
}

TEST(StrictOps, FullAttentionEqualsNaiveLoops) {
  RandomStream random(9);
  for (int i = 0; i < 100; ++i) {
    const AttentionShape shape{between(random, 1, 4), between(random, 1, 5), between(random, 1, 7)};
    std::uint64_t scores = 0, values = 0;
    for (std::uint64_t h = 0; h < shape.heads; ++h)
      for (std::uint64_t q = 0; q < shape.length; ++q)
        for (std::uint64_t k = 0; k < shape.length; ++k)
          for (std::uint64_t d = 0; d < shape.head_dim; ++d) ++scores, ++values;
    const StrictOps ops = strict_ops(shape, InputGradient::needed);
    EXPECT_EQ(ops.forward, Ops(2 * (scores + values)));
    EXPECT_EQ(ops.input_gradient, 2 * ops.forward);
    EXPECT_EQ(ops.weight_gradient, Ops(0));
  }
}

TEST(StrictOps, CausalAttentionIsHalfOfFullForEvenAndOddLengths) {
  for (std::uint64_t length = 1; length <= 9; ++length) {
    const AttentionShape causal{3, 5, length, AttentionMask::causal};
    EXPECT_EQ(2 * attention_product_ops(causal), attention_product_ops({3, 5, length}));
  }
  // T = 3: 2 · heads · head_dim · 4.5 pairs.
  EXPECT_EQ(attention_product_ops({1, 1, 3, AttentionMask::causal}), Ops(9));
}

TEST(StrictOps, NoInputGradientLeavesTheWeightGradient) {
  const StrictOps gemm = strict_ops(GemmShape{2, 3, 5}, InputGradient::none);
  EXPECT_EQ(gemm.input_gradient, Ops(0));
  EXPECT_EQ(gemm.backward(), Ops(60));
  const StrictOps attention = strict_ops(AttentionShape{2, 3, 4}, InputGradient::none);
  EXPECT_EQ(attention.backward(), Ops(0));
}

TEST(StrictOps, OnlyTensorOperationsCount) {
  for (const OperatorShape& shape :
       {OperatorShape(ElementwiseShape{ElementwiseKind::batch_norm, 100}),
        OperatorShape(ElementwiseShape{ElementwiseKind::relu, 100}),
        OperatorShape(MaxPoolShape{64, 9, 4}), OperatorShape(GlobalPoolShape{8, 49}),
        OperatorShape(SoftmaxShape{10})}) {
    EXPECT_EQ(strict_ops(shape, InputGradient::needed).train(), Ops(0));
  }
}

TEST(StrictOps, DoesNotOverflowSixtyFourBits) {
  const GemmShape huge{1ULL << 40, 1ULL << 30, 1ULL << 20};
  EXPECT_EQ(gemm_ops(huge), Ops::from_words(1ULL << 27, 0));
}

PassOps aiperf(const OperatorShape& shape, ConvolutionOrder order = ConvolutionOrder::later) {
  OperatorUse use;
  use.shape = shape;
  use.order = order;
  return count_ops(use, Convention::aiperf);
}

// The rows of the profiler's table for ResNet-50's layers.
TEST(AiperfOps, FollowTheProfilersFormulas) {
  const Conv2dShape stem{3, 64, 1, 7, 7, 112, 112};
  EXPECT_EQ(aiperf(stem).forward, Ops(236027904));
  EXPECT_EQ(aiperf(stem).backward, Ops(9408ULL * (4 * 12544 + 2)));
  EXPECT_EQ(aiperf(stem, ConvolutionOrder::first).backward, Ops(9408ULL * (2 * 12544 + 2)));
  EXPECT_EQ(aiperf(GemmShape{1, 2048, 1000}).forward, Ops(4096000));
  EXPECT_EQ(aiperf(GemmShape{1, 2048, 1000}).backward, Ops(12290000));
  EXPECT_EQ(aiperf(ElementwiseShape{ElementwiseKind::batch_norm, 802816}).forward, Ops(5619712));
  EXPECT_EQ(aiperf(ElementwiseShape{ElementwiseKind::batch_norm, 802816}).backward, Ops(36));
  EXPECT_EQ(aiperf(ElementwiseShape{ElementwiseKind::relu, 802816}).forward, Ops(802816));
  EXPECT_EQ(aiperf(MaxPoolShape{64 * 112 * 112, 9, 4}).forward, Ops(1806336));
  EXPECT_EQ(aiperf(GlobalPoolShape{2048, 49}).forward, Ops(106496));
  EXPECT_EQ(aiperf(SoftmaxShape{1000}).forward, Ops(12999));
  EXPECT_EQ(aiperf(SoftmaxShape{1000}).backward, Ops(0));
}

TEST(AiperfOps, AreAbsentWhereNotDefined) {
  for (const OperatorShape& shape :
       {OperatorShape(GemmShape{2, 3, 4}), OperatorShape(AttentionShape{1, 2, 3}),
        OperatorShape(ElementwiseShape{ElementwiseKind::other, 5})}) {
    EXPECT_FALSE(aiperf(shape).forward.has_value());
    EXPECT_FALSE(aiperf(shape).train().has_value());
  }
}

TEST(LanguageModelOps, FollowTheirFormulas) {
  OperatorUse use;
  use.shape = AttentionShape{2, 4, 8, AttentionMask::causal};
  use.tokens = 8;
  // 12 L H Q T per token, a third of it forward.
  EXPECT_EQ(count_ops(use, Convention::palm).train(), Ops(12 * 2 * 4 * 8 * 8));
  EXPECT_EQ(count_ops(use, Convention::megatron_full).train(), Ops(12 * 2 * 4 * 8 * 8));
  EXPECT_EQ(count_ops(use, Convention::megatron_causal).train(), Ops(6 * 2 * 4 * 8 * 8));
  use.shape = GemmShape{8, 16, 32};
  use.palm_parameters = 16 * 32 + 32;
  EXPECT_EQ(count_ops(use, Convention::palm).train(), Ops(6 * (16 * 32 + 32) * 8));
  EXPECT_EQ(count_ops(use, Convention::megatron_causal).train(), Ops(6 * 8 * 16 * 32));
}

TEST(LanguageModelOps, AreAbsentWithoutTokens) {
  OperatorUse use;
  use.shape = GemmShape{8, 16, 32};
  for (Convention convention :
       {Convention::palm, Convention::megatron_full, Convention::megatron_causal}) {
    EXPECT_FALSE(count_ops(use, convention).forward.has_value());
    EXPECT_FALSE(count_ops(use, convention).backward.has_value());
  }
}

TEST(MacOps, CountTheForwardPassAlone) {
  OperatorUse use;
  use.shape = AttentionShape{2, 4, 8, AttentionMask::causal};
  EXPECT_EQ(count_ops(use, Convention::mac).forward, Ops(2 * 2 * 4 * 8 * 8));
  EXPECT_FALSE(count_ops(use, Convention::mac).backward.has_value());
  use.shape = Conv2dShape{4, 6, 2, 3, 3, 5, 5};
  EXPECT_EQ(count_ops(use, Convention::mac).forward, Ops(2 * 6 * 9 * 25));
}

TEST(Convention, NamesRoundTripAndAreDescribed) {
  for (Convention convention : all_conventions) {
    EXPECT_EQ(parse_value_name<Convention>("convention", to_string(convention)), convention);
    EXPECT_GT(std::string(description(convention)).size(), 20u);
  }
}

TEST(Convention, AnUnknownNameGetsTheNearest) {
  try {
    parse_value_name<Convention>("convention", "megatron-casual");
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("'megatron-causal'?"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace heteroperf
