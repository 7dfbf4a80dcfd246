#include "suite/run/step_trace.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace heteroperf {
namespace {

TEST(StepTrace, SpansComeBackOnOneClockInMicroseconds) {
  const std::vector<InstructionSpan> spans{{0, 5'000, 7'000}, {3, 9'500, 10'000}};
  const std::string text = spans_text(spans, 1'000'000);
  EXPECT_EQ(earliest_start_ns(text), 1'005'000);
  const std::vector<TimeSpan> read = spans_from_text(text, 5, 1'000'000);
  const std::vector<TimeSpan> wanted{{5, 7}, {}, {}, {9.5, 10}, {}};
  EXPECT_EQ(read, wanted);
}

TEST(StepTrace, ARankThatRanNothingIsEmpty) {
  EXPECT_EQ(earliest_start_ns(""), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(spans_from_text("", 2, 0), std::vector<TimeSpan>(2));
}

}  // namespace
}  // namespace heteroperf
