#include "runners/engine/products.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr ProductShape forward{2048, 256, 768, false, true}, backward{2048, 768, 256},
    of_weights{768, 2048, 256, true, false};

TEST(ProductChoices, TextIsReadBack) {
  EXPECT_EQ(to_string(forward), "2048x256x768nt");
  EXPECT_EQ(ProductChoices(ProductWay::own).text(), "own");
  EXPECT_EQ(ProductChoices::parse("own").way_for(forward), ProductWay::own);
  const ProductChoices choices(
      {{of_weights, ProductWay::mkl}, {forward, ProductWay::own}, {backward, ProductWay::own}});
  EXPECT_EQ(choices.text(), "mkl:768x2048x256tn/own:2048x256x768nt,2048x768x256nn");
  const ProductChoices again = ProductChoices::parse(choices.text());
  EXPECT_EQ(again.choices(), choices.choices());
  EXPECT_TRUE(again.takes(ProductWay::mkl));
  EXPECT_FALSE(again.takes(ProductWay::onednn));
}

TEST(ProductChoices, AShapeThatIsNewTakesTheNearestsWay) {
  const ProductChoices choices(
      {{of_weights, ProductWay::onednn}, {forward, ProductWay::own}, {backward, ProductWay::mkl}});
  EXPECT_EQ(choices.way_for({1024, 256, 700, false, true}), ProductWay::own);
  EXPECT_EQ(choices.way_for({100, 900, 300}), ProductWay::mkl);
  EXPECT_EQ(choices.way_for({2048, 256, 768, true, false}), ProductWay::onednn)
      << "how operands lie counts before extents";
}

TEST(ProductChoices, WrongTextsAreRefusedByTheirPart) {
  for (const std::string bad :
       {"", "blas", "own:", "own:12", "own:1x2nn", "own:1x2x3", "own:1x2x3nx", "own:0x2x3nn",
        "own:1x2x3x4nn", "own:1x2x3nn/", "fast:1x2x3nn", "own:-1x2x3nn", "own:1x2x3nn,",
        "own:1x2x3xnn", "own:1x2x3nn,/mkl:4x4x4nn", "/own:1x2x3nn",
        "own:99999999999999999999x2x3nn"}) {
    EXPECT_THROW(ProductChoices::parse(bad), UserError) << bad;
  }
}

TEST(FasterWay, LeavesLibTorchOnlyForAClearGain) {
  EXPECT_EQ(faster_way({1.0, 0, 0.98}), ProductWay::mkl);
  EXPECT_EQ(faster_way({1.0, 0, 0.9}), ProductWay::own);
  EXPECT_EQ(faster_way({1.0, 0.5, 0.9}), ProductWay::onednn);
  EXPECT_EQ(faster_way({1.0, 0, 0}), ProductWay::mkl);
}

}  // namespace
}  // namespace heteroperf
