#include "runners/engine/products.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

const ProductShape forward = ProductShape::of_matrices(2048, 256, 768, false, true),
                   backward = ProductShape::of_matrices(2048, 768, 256),
                   of_weights = ProductShape::of_matrices(768, 2048, 256, true, false);
/// 3x3 over 32 images of 64 channels and 8x8 pixels.
ProductShape convolution(ProductKind pass, std::int64_t extent = 8) {
  return {pass, {32, 64, extent, extent, 128, 3, 3, 2, 1, 1, 0}};
}

TEST(ProductChoices, TextIsReadBack) {
  EXPECT_EQ(to_string(forward), "2048x256x768nt");
  EXPECT_EQ(to_string(convolution(ProductKind::conv_input)), "32x64x8x8x128x3x3x2x1x1x0convdx");
  EXPECT_EQ(ProductChoices(ProductWay::own).text(), "own");
  EXPECT_EQ(ProductChoices::parse("own").way_for(forward), ProductWay::own);
  const ProductChoices choices(
      {{of_weights, ProductWay::mkl}, {forward, ProductWay::own}, {backward, ProductWay::own}});
  EXPECT_EQ(choices.text(), "mkl:768x2048x256tn/own:2048x768x256nn,2048x256x768nt");
  const ProductChoices again = ProductChoices::parse(choices.text());
  EXPECT_EQ(again.choices(), choices.choices());
  EXPECT_TRUE(again.takes(ProductWay::mkl));
  EXPECT_FALSE(again.takes(ProductWay::onednn));
  const ProductShape conv = convolution(ProductKind::conv_weight);
  EXPECT_EQ(ProductShape::parse(to_string(conv)), conv);
  EXPECT_THROW(ProductShape::parse("2048x256nt"), UserError);
}

TEST(ProductShape, KnowsItsOperations) {
  EXPECT_EQ(forward.operations(), 2.0 * 2048 * 256 * 768);
  // Of the four windows from top to bottom the first one has one of its three taps on the padding.
  EXPECT_EQ(convolution(ProductKind::conv).operations(), 2.0 * 32 * (11 * 18) * 64 * 128);
}

TEST(ProductChoices, AShapeThatIsNewTakesTheNearestsWay) {
  const ProductChoices choices(
      {{of_weights, ProductWay::onednn}, {forward, ProductWay::own}, {backward, ProductWay::mkl}});
  EXPECT_EQ(choices.way_for(ProductShape::of_matrices(1024, 256, 700, false, true)),
            ProductWay::own);
  EXPECT_EQ(choices.way_for(ProductShape::of_matrices(100, 900, 300)), ProductWay::mkl);
  EXPECT_EQ(choices.way_for(ProductShape::of_matrices(2048, 256, 768, true, false)),
            ProductWay::onednn)
      << "how operands lie counts before extents";
  EXPECT_EQ(choices.way_for(convolution(ProductKind::conv)), ProductWay::libtorch)
      << "no matrix is near to an image";
  const ProductChoices passes({{convolution(ProductKind::conv, 32), ProductWay::libtorch},
                               {convolution(ProductKind::conv, 8), ProductWay::own},
                               {convolution(ProductKind::conv_weight, 4), ProductWay::mkl}});
  EXPECT_EQ(passes.way_for(convolution(ProductKind::conv, 5)), ProductWay::own);
  EXPECT_EQ(passes.way_for(convolution(ProductKind::conv, 30)), ProductWay::libtorch);
  EXPECT_EQ(passes.way_for(convolution(ProductKind::conv_weight, 30)), ProductWay::mkl);
}

TEST(ProductChoices, WrongTextsAreRefusedByTheirPart) {
  for (const std::string bad : {"",
                                "blas",
                                "own:",
                                "own:12",
                                "own:1x2nn",
                                "own:1x2x3",
                                "own:1x2x3nx",
                                "own:0x2x3nn",
                                "own:1x2x3x4nn",
                                "own:1x2x3nn/",
                                "fast:1x2x3nn",
                                "own:-1x2x3nn",
                                "own:1x2x3nn,",
                                "own:1x2x3xnn",
                                "own:1x2x3nn,/mkl:4x4x4nn",
                                "/own:1x2x3nn",
                                "own:99999999999999999999x2x3nn",
                                "own:1x2x3conv",
                                "own:32x64x8x8x128x3x3x2x1x1x0nn",
                                "own:32x64x8x8x128x3x3x0x1x1x0conv",
                                "mkl:8x4x4x64x32causal",
                                "libtorch:2048x256x768nt"}) {
    EXPECT_THROW(ProductChoices::parse(bad), UserError) << bad;
  }
}

TEST(FasterWay, LeavesLibTorchOnlyForAClearGain) {
  EXPECT_EQ(faster_way(forward, {1.0, 0, 0.98}), ProductWay::mkl);
  EXPECT_EQ(faster_way(forward, {1.0, 0, 0.9}), ProductWay::own);
  EXPECT_EQ(faster_way(forward, {1.0, 0.5, 0.9}), ProductWay::onednn);
  EXPECT_EQ(faster_way(forward, {1.0, 0, 0}), ProductWay::mkl);
  const ProductShape images = convolution(ProductKind::conv);
  EXPECT_EQ(faster_way(images, {0.98, 0, 2, 1.0}), ProductWay::libtorch);
  EXPECT_EQ(faster_way(images, {0.9, 0, 0.8, 1.0}), ProductWay::own);
}

TEST(ProductChoices, GiveNoWayThatAShapeLacks) {
  const ProductShape one_tap{ProductKind::conv_weight, {32, 64, 8, 8, 128, 1, 1, 1, 1}};
  const ProductShape attention{ProductKind::causal, {8, 4, 4, 64, 32}};
  EXPECT_EQ(ProductChoices(ProductWay::libtorch).way_for(one_tap), ProductWay::mkl);
  EXPECT_EQ(ProductChoices(ProductWay::libtorch).way_for(forward), ProductWay::mkl);
  EXPECT_EQ(ProductChoices(ProductWay::onednn).way_for(attention), ProductWay::libtorch);
  EXPECT_EQ(ProductChoices(ProductWay::own).way_for(attention), ProductWay::own);
}

}  // namespace
}  // namespace heteroperf
