#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/comm/element_types.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"
#include "tests/unit/runners/comm/hybrid_configs.hpp"
#include "tests/unit/runners/comm/typed_values.hpp"

namespace heteroperf {
namespace {

const char* const patterns[] = {
    "ab",       "aab",      "aabb",     "abab",     "aaab",     "AaBb", "aABBb",
    "AAbB",     "abc",      "abcabc",   "aaabbc",   "aabcddc",  "abcd", "AabBcdD",
    "aaaaabbc", "aaaaaaab", "ABABBABA", "AAAbbbcd", "abbbbbbb",
};

// ---- every operation behaves as on any transport

struct HybridCase {
  CommunicatorCase tested;
  std::string pattern;
  Algorithm algorithm;
};

std::vector<HybridCase> hybrid_cases() {
  std::vector<HybridCase> cases;
  for (const CommunicatorCase& one : communicator_cases()) {
    for (const char* pattern : {"aabb", "abab", "aaab", "AbABcB", "aabcddc"}) {
      cases.push_back({one, pattern, Algorithm::split_rail});
    }
    cases.push_back({one, "abab", Algorithm::leader});
    cases.push_back({one, "AAbABcB", Algorithm::split_rail});
    cases.push_back({one, "aabb", Algorithm::native});
    cases.push_back({one, "aaaa", Algorithm::segmented_ring});
    cases.push_back({one, "a", Algorithm::native});
  }
  return cases;
}

class Hybrid : public testing::TestWithParam<HybridCase> {};

TEST_P(Hybrid, BehavesAsATransport) {
  const HybridCase& one = GetParam();
  run_hybrid(config_of(one.pattern, one.algorithm),
             [&](HybridCommunicator& group) { run_case(one.tested, group); });
}

INSTANTIATE_TEST_SUITE_P(Threads, Hybrid, testing::ValuesIn(hybrid_cases()),
                         [](const auto& instance) {
                           const HybridCase& one = instance.param;
                           return std::string(one.tested.name) + "_" + one.pattern + "_" +
                                  to_string(one.algorithm);
                         });

// ---- all-reduce

class HybridAllReduce : public testing::TestWithParam<std::tuple<const char*, Algorithm>> {
 protected:
  HybridConfig config(WireFormat wire = WireFormat::fp32) const {
    return config_of(std::get<0>(GetParam()), std::get<1>(GetParam()), wire);
  }
};

TEST_P(HybridAllReduce, IsExactForEveryTypeAndCount) {
  for (int window : {1, 4}) {
    HybridConfig tested = config();
    tested.window = window;
    run_hybrid(tested, [&](HybridCommunicator& group) {
      std::size_t trial = 0;
      for (DataType type : all_types) {
        // The window does not depend on the type.
        if (window == 1 && type != DataType::f32) continue;
        for (Reduction reduction : all_reductions) {
          for (std::size_t count : {0, 1, 7, 300, 2059}) {
            const bool in_place = ++trial % 2 == 0;
            TypedValues local = samples(type, group.rank().value(), count), separate(type, count);
            TypedValues& result = in_place ? local : separate;
            group.all_reduce(local.buffer(), result.buffer(), reduction);
            const auto expected = [&](std::size_t i) {
              return reduced(type, group.size(), i, reduction);
            };
            EXPECT_EQ(result.wrong(expected, tolerance(type, group.size(), reduction)), 0u)
                << to_string(type) << " count " << count << " reduction "
                << static_cast<int>(reduction) << (in_place ? " in place" : "");
          }
        }
      }
    });
  }
}

/// Element i is NaN on rank i % (p + 1) alone; on none where that is p.
TEST_P(HybridAllReduce, OneNaNOfAnyRankMakesMinAndMaxNaN) {
  run_hybrid(config(), [](HybridCommunicator& group) {
    const int ranks = group.size();
    const auto nan_rank = [ranks](std::size_t i) {
      return static_cast<int>(i % static_cast<std::size_t>(ranks + 1));
    };
    for (Reduction reduction : {Reduction::min, Reduction::max}) {
      std::vector<double> values(1000);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = nan_rank(i) == group.rank().value() ? std::nan("") : group.rank().value();
      }
      group.all_reduce(std::span<double>(values), reduction);
      const double expected = reduction == Reduction::min ? 0 : ranks - 1;
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        wrong += nan_rank(i) < ranks ? !std::isnan(values[i]) : values[i] != expected;
      }
      EXPECT_EQ(wrong, 0u) << static_cast<int>(reduction);
    }
  });
}

float part_of(int rank, std::size_t i) {
  const auto bits = random_bits(23, rank, i);
  return static_cast<float>((to_unit(bits) - 0.5) * std::exp2(static_cast<double>(bits % 12)));
}

/// What each cluster contributes, in double precision.
std::vector<std::vector<double>> cluster_sums(const RankClusters& clusters, std::size_t count) {
  std::vector<std::vector<double>> sums;
  for (const RankCluster& cluster : clusters.clusters) {
    std::vector<double> sum(count, 0.0);
    for (RankId rank : cluster.ranks) {
      for (std::size_t i = 0; i < count; ++i) sum[i] += double{part_of(rank.value(), i)};
    }
    sums.push_back(std::move(sum));
  }
  return sums;
}

/// Every block of the wire lies inside one of these windows around an element.
double absmax_near(const std::vector<double>& values, std::size_t i) {
  const std::size_t begin = i < 256 ? 0 : i - 255;
  double largest = 0;
  for (std::size_t k = begin; k < std::min(values.size(), i + 256); ++k) {
    largest = std::max(largest, std::abs(values[k]));
  }
  return largest;
}

TEST_P(HybridAllReduce, EncodedSumsAreWithinTheBoundAndAlikeOnAllRanks) {
  for (WireFormat wire : {WireFormat::bf16, WireFormat::int8}) {
    const HybridConfig tested = config(wire);
    const std::size_t count = 2777;
    const auto sums = cluster_sums(tested.clusters, count);
    run_hybrid(tested, [&](HybridCommunicator& group) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = part_of(group.rank().value(), i);
      group.all_reduce(std::span<float>(values));
      std::size_t beyond = 0, different = 0;
      for (std::size_t i = 0; i < count; ++i) {
        double exact = 0, bound = 0;
        for (const auto& sum : sums) {
          exact += sum[i];
          bound += wire == WireFormat::bf16 ? std::abs(sum[i]) * 0x1p-8 : absmax_near(sum, i) / 254;
        }
        const double rounding = 1e-2;  // of float32 sums of numbers up to 2^11, in 2^-10
        beyond += !(std::abs(values[i] - exact) <= bound + rounding);
        different += values[i] != static_cast<float>(exact);
      }
      EXPECT_EQ(beyond, 0u) << to_string(wire);
      EXPECT_GT(different, count / 4) << "nothing was encoded";
      auto of_rank_0 = values;
      group.broadcast(std::span<float>(of_rank_0), RankId(0));
      EXPECT_EQ(std::memcmp(values.data(), of_rank_0.data(), count * sizeof(float)), 0);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, HybridAllReduce,
                         testing::Combine(testing::ValuesIn(patterns),
                                          testing::Values(Algorithm::leader,
                                                          Algorithm::split_rail)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param)) + "_" +
                                  to_string(std::get<1>(instance.param));
                         });

}  // namespace
}  // namespace heteroperf
