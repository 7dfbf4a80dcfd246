#include "suite/run/prepare.hpp"

#include <gtest/gtest.h>

namespace heteroperf {
namespace {

constexpr double gib = 1 << 30;

/// Problems of ranks that need so many GiB each, with 4 GiB of the host for each.
std::vector<Problem> problems_of(const std::vector<double>& needed_gib,
                                 const std::vector<RankBinding>& bindings) {
  Workload workload;
  workload.name = "llm";
  workload.size = "mini";
  std::vector<double> needed;
  for (const double one : needed_gib) needed.push_back(one * gib);
  ProblemList problems;
  check_memory(workload, needed, bindings, std::uint64_t{4} << 30, problems);
  return problems.problems();
}

RankBinding on_gpu(std::uint64_t memory_gib) {
  return {"a", {0}, "", "NVIDIA H200", 0, memory_gib << 30};
}
const RankBinding on_host{"a", {0}, ""};

TEST(MemoryCheck, RanksOfAHostShareItsMemory) {
  EXPECT_TRUE(problems_of({6, 2}, {on_host, on_host}).empty());
  const auto problems = problems_of({6, 4}, {on_host, on_host});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].problem, "llm of size mini needs 5 GiB per rank");
  EXPECT_EQ(problems[0].why, "4 GiB available, 1 GiB too little");
}

TEST(MemoryCheck, ARankOnAGpuIsHeldAgainstThatAlone) {
  EXPECT_TRUE(problems_of({7}, {on_gpu(8)}).empty());
  EXPECT_TRUE(problems_of({7, 3}, {on_gpu(8), on_host}).empty());
  const auto problems = problems_of({9, 5, 1}, {on_gpu(8), on_host, on_host});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].problem,
            "llm of size mini needs 9 GiB on the GPU of rank 0 (NVIDIA H200 of a)");
  EXPECT_EQ(problems[0].why, "8 GiB available, 1 GiB too little");
}

TEST(MemoryCheck, AnEmulatedChipHasAMemoryOfItsOwnWithinTheHosts) {
  const RankBinding chip{"a", {0}, "", "emulated:small", std::nullopt, std::uint64_t{2} << 30};
  EXPECT_TRUE(problems_of({2, 4}, {chip, on_host}).empty());
  auto problems = problems_of({3, 4}, {chip, on_host});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].problem,
            "llm of size mini needs 3 GiB on the device of rank 0 (emulated:small of a)");
  EXPECT_EQ(problems[0].why, "2 GiB available, 1 GiB too little");
  problems = problems_of({2, 9}, {chip, on_host});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].problem, "llm of size mini needs 5.5 GiB per rank");
}

TEST(MemoryCheck, TheRankThatLacksMostIsNamed) {
  const auto problems = problems_of({10, 9, 9, 5}, {on_gpu(8), on_gpu(4), on_gpu(8), on_host});
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].problem, "llm of size mini needs 5 GiB per rank");
  EXPECT_NE(problems[1].problem.find("9 GiB on the GPU of rank 1"), std::string::npos);
}

TEST(MemoryCheck, WhatIsNotKnownRefusesNothing) {
  EXPECT_TRUE(problems_of({1000}, {on_gpu(0)}).empty());
  ProblemList problems;
  check_memory(Workload(), {1000 * gib}, {on_host}, 0, problems);
  EXPECT_TRUE(problems.problems().empty());
}

}  // namespace
}  // namespace heteroperf
