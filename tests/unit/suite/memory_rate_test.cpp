#include "suite/run/memory_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace heteroperf {
namespace {

TEST(MemoryRate, IsARateOnAnyNumberOfThreads) {
  for (const int threads : {1, 3}) {
    const double rate = measure_memory_rate(threads, 0.01);
    EXPECT_TRUE(std::isfinite(rate));
    EXPECT_GT(rate, 1e6);  // no machine that runs this reads less than a megabyte per second
  }
}

TEST(MemoryRate, MakesOnePassWithoutTime) { EXPECT_GT(measure_memory_rate(1, 0), 0); }

}  // namespace
}  // namespace heteroperf
