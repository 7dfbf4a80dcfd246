#include "suite/watch/live_watch.hpp"

#include <gtest/gtest.h>

namespace heteroperf {
namespace {

TEST(GpuWatch, TellsWhatWasCountedSinceItsStart) {
  const GpuWatch watch("0000:1b:00.0", "node-1", 3,
                       HETEROPERF_FAKE_NVML);  // counts a second per reading
  const auto event = watch.until_now();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->host, "node-1");
  EXPECT_EQ(event->gpu, "0000:1b:00.0");
  EXPECT_EQ(event->rank, 3);
  EXPECT_EQ(event->thermal_s, 1.0);
  EXPECT_EQ(event->power_s, 1.0);
  EXPECT_EQ(watch.until_now()->thermal_s, 2.0);
}

TEST(GpuWatch, SaysNothingWhereNothingIsCounted) {
  EXPECT_FALSE(GpuWatch("0000:ff:00.0", "a", 0, HETEROPERF_FAKE_NVML).until_now().has_value());
  EXPECT_FALSE(GpuWatch("0000:1b:00.0", "a", 0, "libheteroperf_none.so").until_now().has_value());
}

}  // namespace
}  // namespace heteroperf
