#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>

#include "metrics/base/random.hpp"
#include "runners/comm/benchmark/collective_case.hpp"
#include "runners/comm/benchmark/operation_deadline.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

constexpr DataType summed_types[] = {DataType::f32, DataType::f64, DataType::bf16,
                                     DataType::f16, DataType::i32, DataType::i64};
constexpr Reduction all_reductions[] = {Reduction::sum, Reduction::min, Reduction::max,
                                        Reduction::average};

/// A buffer of its own.
struct Block {
  Block(DataType t, std::size_t n) : memory(n * size_of(t)), buffer(memory.data(), n, t) {}
  std::vector<std::byte> memory;
  MutableBuffer buffer;
};

/// Adds two blocks at a time in a random order, rounding to the type after every step.
Block reduced_in_random_order(const ExactValues& values, Reduction reduction, std::size_t count,
                              std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<Block> blocks;
  for (int r = 0; r < values.ranks; ++r) {
    blocks.emplace_back(values.type, count);
    blocks.back().buffer.data = blocks.back().memory.data();
    values.fill(RankId(r), 7, blocks.back().buffer);
  }
  for (Block& block : blocks) block.buffer.data = block.memory.data();
  while (blocks.size() > 1) {
    std::swap(blocks[random.below(blocks.size())], blocks.back());
    Block last = std::move(blocks.back());
    blocks.pop_back();
    Block& into = blocks[random.below(blocks.size())];
    const std::vector<const void*> sources{into.memory.data(), last.memory.data()};
    const std::vector<void*> destinations{into.memory.data()};
    reduce_in_order(sources, destinations, count, values.type, reduction);
  }
  blocks.front().buffer.data = blocks.front().memory.data();
  return std::move(blocks.front());
}

TEST(ExactValues, AnyOrderOfAnyReductionGivesTheSameBits) {
  constexpr std::size_t count = 37;
  for (const DataType type : summed_types) {
    for (const int ranks : {1, 2, 3, 8, 300}) {
      const ExactValues values{type, ranks, 42};
      for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max}) {
        Block expected(type, count);
        values.fill_reduced(reduction, 7, expected.buffer);
        for (std::uint64_t seed : {1, 2, 3}) {
          const Block got = reduced_in_random_order(values, reduction, count, seed);
          EXPECT_EQ(std::memcmp(got.memory.data(), expected.memory.data(), got.memory.size()), 0)
              << to_string(type) << " ranks " << ranks;
        }
      }
    }
  }
}

TEST(ExactValues, ElementsDependOnRankSeedAndPositionAlone) {
  const ExactValues values{DataType::f32, 4, 9};
  std::vector<float> whole(100), part(13);
  values.fill(RankId(2), 0, std::span<float>(whole));
  values.fill(RankId(2), 31, std::span<float>(part));
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 31));
  for (const float value : whole) EXPECT_LE(std::abs(value), values.largest());
  std::vector<float> other(100);
  values.fill(RankId(1), 0, std::span<float>(other));
  EXPECT_NE(whole, other);
  ExactValues{DataType::f32, 4, 10}.fill(RankId(2), 0, std::span<float>(other));
  EXPECT_NE(whole, other);
}

TEST(ExactValues, AveragesAreTheSumDividedOnce) {
  const ExactValues values{DataType::f32, 3, 5};
  std::vector<float> sum(50), average(50);
  values.fill_reduced(Reduction::sum, 0, std::span<float>(sum));
  values.fill_reduced(Reduction::average, 0, std::span<float>(average));
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(average[i], sum[i] / 3.0F);
}

TEST(DeviationOf, CountsWhatIsBeyondTheTolerance) {
  const std::vector<float> expected{1, 2, 3, NAN, 5, 0.0F};
  std::vector<float> got{1, std::nextafter(2.0F, 3.0F), 3.5F, NAN, NAN, -0.0F};
  const auto wrong = [&](const Tolerance& tolerance) {
    return deviation(std::span<const float>(got), std::span<const float>(expected), tolerance)
        .wrong;
  };
  EXPECT_EQ(wrong({}), 3U);
  EXPECT_EQ(wrong({1, 0}), 2U);
  EXPECT_EQ(wrong({0, 0.6}), 1U);
  EXPECT_DOUBLE_EQ(
      deviation(std::span<const float>(got), std::span<const float>(expected), {}).largest, 0.5);
}

// ---- collectives

TEST(CollectiveCase, EveryCollectiveOfEveryTypeIsRight) {
  for (const int ranks : {2, 3, 5}) {
    run_on_threads(ranks, {}, [](World& world) {
      for (const Collective collective : all_collectives()) {
        for (const DataType type : summed_types) {
          for (const Reduction reduction : all_reductions) {
            for (const bool in_place : {false, true}) {
              CollectiveCase one(*world.communicator,
                                 {collective, type, reduction, RankId(1), Bytes(1200), in_place});
              one.fill(3);
              one.run();
              EXPECT_EQ(one.check({reduction == Reduction::average ? 2 : 0, 0}).wrong, 0U)
                  << to_string(collective) << " " << to_string(type) << " in place " << in_place;
            }
          }
        }
      }
    });
  }
}

TEST(CollectiveCase, AResultThatWasNotWrittenIsWrong) {
  run_on_threads(2, {}, [](World& world) {
    for (const Collective collective : all_collectives()) {
      CollectiveCase one(*world.communicator, {collective, DataType::f32, Reduction::sum, RankId(0),
                                               Bytes(4096), false});
      one.fill(3);
      const bool untouched_by_right =
          world.communicator->rank() != RankId(0) && collective == Collective::reduce;
      const bool holds_the_truth =
          world.communicator->rank() == RankId(0) && collective == Collective::broadcast;
      if (!untouched_by_right && !holds_the_truth) {
        EXPECT_GT(one.check({}).wrong, 0U) << to_string(collective);
      }
      one.run();
      EXPECT_EQ(one.check({}).wrong, 0U) << to_string(collective);
      one.fill(4);
    }
  });
}

TEST(CollectiveCase, SizesAreRoundedAsBlocksNeed) {
  const auto elements = [](Collective collective, std::uint64_t bytes) {
    return elements_of({collective, DataType::f32, Reduction::sum, RankId(0), Bytes(bytes), false},
                       3);
  };
  EXPECT_EQ(elements(Collective::all_reduce, 8), 2U);
  EXPECT_EQ(elements(Collective::reduce_scatter, 8), 0U);
  EXPECT_EQ(elements(Collective::all_gather, 29), 6U);
  EXPECT_EQ(elements(Collective::all_to_all, 48), 12U);
}

TEST(CollectiveCase, NoElementsAreValid) {
  run_on_threads(3, {}, [](World& world) {
    for (const Collective collective : all_collectives()) {
      CollectiveCase one(*world.communicator,
                         {collective, DataType::f32, Reduction::sum, RankId(0), Bytes(0), false});
      one.fill(1);
      one.run();
      EXPECT_EQ(one.check({}).wrong, 0U);
      EXPECT_EQ(one.bytes(), Bytes(0));
    }
  });
}

TEST(BusFactor, IsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::send_receive, 4), 1);
}

TEST(ParseCollective, NamesTheNearest) {
  for (const Collective one : all_collectives()) EXPECT_EQ(parse_collective(to_string(one)), one);
  try {
    parse_collective("allreduc");
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("allreduce"), std::string::npos);
  }
}

// ---- time

TEST(CallTime, SummarisesOrderStatistics) {
  std::vector<double> seconds(101);
  std::iota(seconds.begin(), seconds.end(), 0.0);
  std::reverse(seconds.begin(), seconds.end());
  const CallTime time = summarise(seconds);
  EXPECT_DOUBLE_EQ(time.median.value(), 50);
  EXPECT_DOUBLE_EQ(time.fastest.value(), 0);
  EXPECT_DOUBLE_EQ(time.p95.value(), 95);
  // Binomial quantiles of 101 draws at one half: 40.65 and 60.35.
  EXPECT_DOUBLE_EQ(time.ci95.low, 40);
  EXPECT_DOUBLE_EQ(time.ci95.high, 61);
  EXPECT_EQ(time.iterations, 101U);
}

TEST(TimeCalls, CountsCallsAndAgreesOnTheSlowest) {
  run_on_threads(3, {}, [](World& world) {
    int calls = 0;
    const bool slow = world.communicator->rank() == RankId(1);
    const CallTime time = time_calls(*world.communicator,
                                     [&] {
                                       ++calls;
                                       if (slow)
                                         std::this_thread::sleep_for(std::chrono::milliseconds(3));
                                     },
                                     {2, 9, Seconds(1)});
    EXPECT_EQ(calls, 11);
    EXPECT_EQ(time.iterations, 9U);
    EXPECT_GE(time.fastest.value(), 0.003);
  });
}

/// Two ranks begin a barrier that rank 1 joins or not. What rank 0 is told.
PeerError late_barrier(bool rank_1_begins) {
  std::optional<PeerError> said;
  EXPECT_THROW(run_on_threads(3, {},
                              [&](World& world) {
                                const RankId rank = world.communicator->rank();
                                OperationDeadline deadline(*world.control, rank, 3);
                                deadline.expect("all_reduce of 8 bytes", Seconds(0.2));
                                if (rank != RankId(1) || rank_1_begins) deadline.begin();
                                if (rank == RankId(1)) {
                                  while (!world.control->failure()) std::this_thread::yield();
                                  return;
                                }
                                try {
                                  world.communicator->barrier();
                                } catch (const PeerError& error) {
                                  if (rank == RankId(0)) said = error;
                                  throw;
                                }
                              }),
               PeerError);
  return said.value();
}

TEST(OperationDeadlines, ARankThatTakesNoPartIsNamed) {
  const PeerError error = late_barrier(false);
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_EQ(error.failure().rank, RankId(1));
  EXPECT_NE(std::string(error.what()).find("all_reduce of 8 bytes took longer"), std::string::npos)
      << error.what();
}

TEST(OperationDeadlines, RanksThatAllHangAreToldApart) {
  EXPECT_NE(std::string(late_barrier(true).what()).find("every rank takes part"),
            std::string::npos);
}

TEST(OperationDeadlines, OneThatEndsInTimeIsForgotten) {
  run_on_threads(1, {}, [](World& world) {
    OperationDeadline deadline(*world.control, RankId(0), 1);
    deadline.expect("barrier", Seconds(0.05));
    deadline.begin();
    deadline.end();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_FALSE(world.control->failure());
  });
}

TEST(StrictLimit, IsFiveSecondsOrTwentyTimesThePrediction) {
  EXPECT_EQ(strict_limit(Seconds(0.001)), Seconds(5));
  EXPECT_EQ(strict_limit(Seconds(2)), Seconds(40));
}

}  // namespace
}  // namespace heteroperf
