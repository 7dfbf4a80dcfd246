#include "runners/cluster/gpu_slowdown.hpp"

#include <gtest/gtest.h>

namespace heteroperf {
namespace {

TEST(GpuSlowdown, IsReadInSecondsByBusId) {
  const GpuSlowdownReader reader(HETEROPERF_FAKE_NVML);
  EXPECT_EQ(reader.reason(), "");
  const GpuSlowdown before = reader.read("0000:1b:00.0");
  ASSERT_TRUE(before.thermal_s && before.power_s);
  EXPECT_EQ(*before.power_s - *before.thermal_s, 5.0);
  const GpuSlowdown between = reader.read("0000:1b:00.0") - before;
  EXPECT_EQ(between.thermal_s, 1.0);
  EXPECT_EQ(between.power_s, 1.0);
}

TEST(GpuSlowdown, WhatTheDriverDoesNotCountIsAbsent) {
  const GpuSlowdownReader reader(HETEROPERF_FAKE_NVML);
  EXPECT_TRUE(reader.read("0000:3d:00.0").thermal_s.has_value());
  EXPECT_FALSE(reader.read("0000:3d:00.0").power_s.has_value());
  EXPECT_FALSE(reader.read("0000:ff:00.0").thermal_s.has_value());
}

TEST(GpuSlowdown, WithoutTheLibraryItSaysWhyAndReadsNothing) {
  const GpuSlowdownReader reader("libheteroperf_no_such_library.so");
  EXPECT_NE(reader.reason().find("libheteroperf_no_such_library.so"), std::string::npos);
  EXPECT_FALSE(reader.read("0000:1b:00.0").thermal_s.has_value());
}

TEST(GpuSlowdown, ALibraryOfSomethingElseReadsNothing) {
  const GpuSlowdownReader reader("libm.so.6");
  EXPECT_NE(reader.reason().find("nvmlInit_v2"), std::string::npos) << reader.reason();
  EXPECT_FALSE(reader.read("0000:1b:00.0").thermal_s.has_value());
}

TEST(GpuSlowdown, AResetCounterCountsAsNothing) {
  const GpuSlowdown between = GpuSlowdown{1.0, {}} - GpuSlowdown{4.0, 2.0};
  EXPECT_EQ(between.thermal_s, 0.0);
  EXPECT_FALSE(between.power_s.has_value());
}

}  // namespace
}  // namespace heteroperf
