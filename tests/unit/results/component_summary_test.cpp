#include "results/record/component_summary.hpp"

#include <gtest/gtest.h>

namespace heteroperf {
namespace {

AdaptEvent look(std::uint64_t n, AdaptDecision decision, std::vector<PlannedBorder> borders) {
  AdaptEvent event;
  event.n = n;
  event.decision = decision;
  event.borders = std::move(borders);
  return event;
}

TEST(PlannedBorder, IsThatOfThePlansThatWereInForce) {
  Journal journal;
  PlanEvent plan;
  plan.borders = {{"vision", 10, 8}, {"text", 5, 5}};
  journal.lines.push_back({0, plan});
  journal.lines.push_back({1, look(5, AdaptDecision::no_gain, {})});
  journal.lines.push_back(
      {2, look(6, AdaptDecision::new_plan, {{"vision", 4, 4}, {"text", 0, 0}})});
  const auto sent = [&](const char* component, std::uint64_t first, std::uint64_t steps) {
    const BorderSummary border = planned_border(journal, component, first, steps);
    return std::pair(border.planned, border.least);
  };
  EXPECT_EQ(sent("vision", 0, 6), std::pair(std::uint64_t{60}, std::uint64_t{48}));
  EXPECT_EQ(sent("vision", 4, 5),
            std::pair(std::uint64_t{2 * 10 + 3 * 4}, std::uint64_t{2 * 8 + 3 * 4}));
  EXPECT_EQ(sent("vision", 9, 2), std::pair(std::uint64_t{8}, std::uint64_t{8}));
  EXPECT_EQ(sent("text", 4, 5), std::pair(std::uint64_t{10}, std::uint64_t{10}));
  EXPECT_EQ(sent("audio", 4, 5), std::pair(std::uint64_t{0}, std::uint64_t{0}));
}

TEST(Components, OfAModelOfOneAreNotToldApart) {
  Journal journal;
  journal.lines.push_back({0, PlanEvent{{"{}"}, "", {}}});
  EXPECT_TRUE(summarize_components(journal).empty());
}

}  // namespace
}  // namespace heteroperf
