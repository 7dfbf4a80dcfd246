#include "workloads/data/step_samples.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "workloads/data/generated_scenes.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t pass_seed = 5, in_step = 24;

GeneratedScenes scenes(std::int64_t most, std::int64_t fewest = 0) {
  return GeneratedScenes(
      {.kind = SampleKind::captions, .image_places = 9, .images = most, .fewest_images = fewest},
      3);
}

// Every order of samples is the pass's own where each has one image.
TEST(StepSamples, OfOneImageFollowThePass) {
  const GeneratedScenes data = scenes(0);
  const StepSamples step(data, pass_seed, 7, in_step);
  EXPECT_FALSE(step.ragged());
  for (std::uint64_t i = 0; i < in_step; ++i) {
    EXPECT_EQ(step[i], shuffled_index(pass_seed, data.size(Split::train), 7 * in_step + i));
    EXPECT_EQ(step.first_image(i), i);
  }
}

// A step has the samples of its part of the pass, whoever takes them, and every run of them has
// about its share of the images: that of the even spread, and less than a sample's more or less.
TEST(StepSamples, AreDealtByTheirImages) {
  for (const auto& [fewest, most] : {std::pair(0, 1), std::pair(0, 4), std::pair(2, 8)}) {
    const GeneratedScenes data = scenes(most, fewest);
    for (std::uint64_t s = 0; s < 40; ++s) {
      const StepSamples step(data, pass_seed, s, in_step);
      ASSERT_TRUE(step.ragged());
      std::multiset<std::uint64_t> dealt, pass;
      std::uint64_t images = 0;
      for (std::uint64_t i = 0; i < in_step; ++i) {
        dealt.insert(step[i]);
        pass.insert(shuffled_index(pass_seed, data.size(Split::train), s * in_step + i));
        EXPECT_EQ(step.first_image(i), images);
        images += data.images(Split::train, step[i]);
      }
      EXPECT_EQ(dealt, pass);
      EXPECT_EQ(step.images(), images);
      EXPECT_EQ(step.first_image(in_step), images);
      for (std::uint64_t begin = 0; begin < in_step; ++begin) {
        for (std::uint64_t end = begin + 1; end <= in_step; ++end) {
          const double share = static_cast<double>(images * (end - begin)) / in_step;
          const double here = static_cast<double>(step.first_image(end) - step.first_image(begin));
          EXPECT_LE(std::abs(here - share), most) << s << ": " << begin << " to " << end;
        }
      }
    }
  }
}

TEST(StepSamples, CountImagesOfValidation) {
  EXPECT_TRUE(validation_images(scenes(0), 3, 5).empty());
  const GeneratedScenes data = scenes(4);
  const std::vector<std::int64_t> images = validation_images(data, 3, 5);
  ASSERT_EQ(images.size(), 6u);
  EXPECT_EQ(images.front(), 0);
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(images[i + 1] - images[i], data.images(Split::validation, 3 + i));
  }
}

}  // namespace
}  // namespace heteroperf
