#include <gtest/gtest.h>

#include <array>

#include "runners/plan/rivals/sailor/sailor_inputs.hpp"
#include "runners/plan/rivals/sailor/sailor_score.hpp"
#include "runners/plan/rivals/sailor/sailor_search.hpp"
#include "tests/unit/workloads/data/shared_data.hpp"

namespace heteroperf {
namespace {

double found_s(const SailorTables& tables, const SailorDevices& devices, SailorScore score) {
  const SailorSearchResult result = search_sailor(tables, devices, score, 1e9);
  check_sailor_plan(tables, result.plan);
  return result.step_time_s;
}

class PublishedTrace : public testing::TestWithParam<std::array<double, 4>> {};

/// OPT-350M, batch 1024: Sailor's own plans take 5.884, 2.771 and 1.912 s.
TEST_P(PublishedTrace, IsBeaten) {
  const auto folder = shared_data("sailor");
  if (!folder) GTEST_SKIP() << "no sailor among the shared data (HETEROPERF_SHARED)";
  const SailorTables tables(
      read_sailor_inputs({.folder = *folder, .training = "training_config_opt_350.json"}));
  SailorDevices devices(tables.places().size(), 0);
  devices[static_cast<std::size_t>(tables.place("A100-40"))] = static_cast<int>(GetParam()[0]);
  devices[static_cast<std::size_t>(tables.place("V100-16"))] = static_cast<int>(GetParam()[1]);
  EXPECT_LE(found_s(tables, devices, SailorScore::published), GetParam()[2]);
  EXPECT_LE(found_s(tables, devices, SailorScore::extended), GetParam()[3]);
}

INSTANTIATE_TEST_SUITE_P(SailorSearch, PublishedTrace,
                         testing::Values(std::array{32.0, 96.0, 5.13, 4.731},
                                         std::array{80.0, 240.0, 2.48, 2.385},
                                         std::array{128.0, 384.0, 1.76, 1.737}));

}  // namespace
}  // namespace heteroperf
