#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/comm/collectives/all_reduce.hpp"
#include "runners/comm/collectives/partial_sums.hpp"
#include "runners/comm/collectives/segment_pipeline.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"
#include "tests/unit/runners/comm/typed_values.hpp"

namespace heteroperf {
namespace {

constexpr Algorithm flat_algorithms[] = {Algorithm::recursive_doubling, Algorithm::ring,
                                         Algorithm::segmented_ring, Algorithm::rabenseifner,
                                         Algorithm::tree};

// ---- names

TEST(Algorithm, NamesAreReadBack) {
  for (Algorithm one : all_algorithms()) EXPECT_EQ(parse_algorithm(to_string(one)), one);
  EXPECT_EQ(all_algorithms().size(), 8u);
}

TEST(Algorithm, AWrongNameIsToldTheNearest) {
  try {
    parse_algorithm("segmented-ring");
    FAIL() << "was taken";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("segmented_ring"), std::string::npos) << error.what();
  }
  EXPECT_THROW(parse_algorithm(""), UserError);
}

// ---- flat all-reduces

class FlatAllReduce : public testing::TestWithParam<std::tuple<Algorithm, int>> {
 protected:
  Algorithm algorithm() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
};

TEST_P(FlatAllReduce, IsExactForEveryTypeAndCount) {
  run_on_threads(ranks(), {}, [&](World& world) {
    Communicator& group = *world.communicator;
    Scratch scratch;
    std::size_t trial = 0;
    for (DataType type : all_types) {
      for (Reduction reduction : all_reductions) {
        for (std::size_t count : {0, 1, 7, 17, 129, 1500}) {
          const bool in_place = ++trial % 2 == 0;
          const std::size_t segment_bytes = trial % 3 == 0 ? 65536 : 64 + count / 8;
          TypedValues local = samples(type, group.rank().value(), count), separate(type, count);
          TypedValues& result = in_place ? local : separate;
          all_reduce({group, local.buffer(), result.buffer(), reduction, scratch, segment_bytes},
                     algorithm());
          const auto expected = [&](std::size_t i) { return reduced(type, ranks(), i, reduction); };
          EXPECT_EQ(result.wrong(expected, tolerance(type, ranks(), reduction)), 0u)
              << to_string(type) << " count " << count << " reduction "
              << static_cast<int>(reduction) << (in_place ? " in place" : "");
          if (!in_place) {
            EXPECT_EQ(local.bytes(), samples(type, group.rank().value(), count).bytes());
          }
        }
      }
    }
  });
}

/// Numbers whose sum depends on the order, with the values that are hardest to keep equal.
std::vector<float> awkward_values(int rank, std::size_t count) {
  constexpr float special[] = {0.0F,
                               -0.0F,
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN(),
                               1e-45F};
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = random_bits(17, rank, i);
    values[i] =
        bits % 5 == 0
            ? special[bits / 5 % std::size(special)]
            : static_cast<float>((to_unit(bits) - 0.5) * std::exp2(static_cast<double>(bits % 40)));
  }
  return values;
}

TEST_P(FlatAllReduce, EveryRankGetsTheSameBits) {
  run_on_threads(ranks(), {}, [&](World& world) {
    Communicator& group = *world.communicator;
    Scratch scratch;
    for (Reduction reduction : all_reductions) {
      for (std::size_t count : {5, 3001}) {
        auto values = awkward_values(group.rank().value(), count);
        const std::span<float> all(values);
        all_reduce({group, MutableBuffer(all), MutableBuffer(all), reduction, scratch, 512},
                   algorithm());
        auto of_rank_0 = values;
        group.broadcast(std::span<float>(of_rank_0), RankId(0));
        EXPECT_EQ(std::memcmp(values.data(), of_rank_0.data(), count * sizeof(float)), 0)
            << static_cast<int>(reduction) << " count " << count;
      }
    }
  });
}

/// Element i is NaN on rank i % (p + 1) alone; on none where that is p.
TEST_P(FlatAllReduce, OneNaNOfAnyRankMakesMinAndMaxNaN) {
  run_on_threads(ranks(), {}, [&](World& world) {
    Communicator& group = *world.communicator;
    const auto nan_rank = [&](std::size_t i) {
      return static_cast<int>(i % static_cast<std::size_t>(ranks() + 1));
    };
    Scratch scratch;
    for (Reduction reduction : {Reduction::min, Reduction::max}) {
      std::vector<float> values(1000);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = nan_rank(i) == group.rank().value() ? std::numeric_limits<float>::quiet_NaN()
                                                        : static_cast<float>(group.rank().value());
      }
      const std::span<float> all(values);
      all_reduce({group, MutableBuffer(all), MutableBuffer(all), reduction, scratch, 512},
                 algorithm());
      const auto expected = static_cast<float>(reduction == Reduction::min ? 0 : ranks() - 1);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        wrong += nan_rank(i) < ranks() ? !std::isnan(values[i]) : values[i] != expected;
      }
      EXPECT_EQ(wrong, 0u) << static_cast<int>(reduction);
    }
  });
}

TEST_P(FlatAllReduce, HalfTypesAreRoundedOnce) {
  run_on_threads(ranks(), {}, [&](World& world) {
    Communicator& group = *world.communicator;
    Scratch scratch;
    const std::size_t count = 777;
    // Sums of whole numbers up to 256: exact in float32, not in bf16.
    const auto part = [](int rank, std::size_t i) {
      return static_cast<float>(random_bits(5, rank, i) % 257);
    };
    std::vector<BFloat16> values(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int rank = 0; rank < group.size(); ++rank) sum += part(rank, i);
      expected[i] = BFloat16(sum);
      values[i] = BFloat16(part(group.rank().value(), i));
    }
    const std::span<BFloat16> all(values);
    all_reduce({group, MutableBuffer(all), MutableBuffer(all), Reduction::sum, scratch, 300},
               algorithm());
    EXPECT_EQ(values, expected);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, FlatAllReduce,
                         testing::Combine(testing::ValuesIn(flat_algorithms),
                                          testing::Values(1, 2, 3, 4, 5, 6, 7, 8)),
                         [](const auto& instance) {
                           return std::string(to_string(std::get<0>(instance.param))) + "_" +
                                  std::to_string(std::get<1>(instance.param));
                         });

TEST(FlatAllReduces, NeedNoLibraryForOneRank) {
  const auto group = make_null_communicator();
  Scratch scratch;
  const std::vector<double> local{1, 2, 3};
  for (Algorithm algorithm : flat_algorithms) {
    std::vector<double> result(3);
    all_reduce({*group, std::span<const double>(local), std::span<double>(result),
                Reduction::average, scratch},
               algorithm);
    EXPECT_EQ(result, local);
  }
}

// ---- all collectives over messages

/// A communicator that has messages and nothing else.
class MessagesAlone final : public MessageCommunicator {
 public:
  // Small segments, so that small tests have many.
  explicit MessagesAlone(std::unique_ptr<Communicator> group)
      : MessageCommunicator(1024), group_(std::move(group)) {}

  RankId rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::string transport() const override { return "messages"; }
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    return group_->start_send(values, to, tag);
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override {
    return group_->start_receive(values, from, tag);
  }
  std::unique_ptr<Communicator> split(int colour, int key) override {
    return std::make_unique<MessagesAlone>(group_->split(colour, key));
  }

 private:
  std::unique_ptr<Communicator> group_;
};

class OverMessages : public testing::TestWithParam<std::tuple<CommunicatorCase, int>> {};

TEST_P(OverMessages, BehavesAsATransport) {
  const auto& [one, ranks] = GetParam();
  run_on_threads(ranks, {}, [&, &tested = one](World& world) {
    MessagesAlone group(std::move(world.communicator));
    run_case(tested, group);
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, OverMessages,
                         testing::Combine(testing::ValuesIn(communicator_cases().begin(),
                                                            communicator_cases().end()),
                                          testing::Values(1, 2, 3, 4, 7)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param).name) + "_" +
                                  std::to_string(std::get<1>(instance.param));
                         });

TEST(OverMessages, SumsOfHalfTypesAreRoundedOnce) {
  run_on_threads(5, {}, [](World& world) {
    MessagesAlone alone(std::move(world.communicator));
    Communicator& group = alone;
    // Rounded after each addition it would stay 256.
    std::vector<BFloat16> values(5, BFloat16(group.rank() == RankId(0) ? 256.0F : 0.75F));
    std::vector<BFloat16> block(1), at_root(5);
    group.reduce_scatter(std::span<const BFloat16>(values), std::span<BFloat16>(block));
    EXPECT_EQ(static_cast<float>(block[0]), 260.0F);
    group.reduce(std::span<const BFloat16>(values), std::span<BFloat16>(at_root), RankId(3));
    if (group.rank() == RankId(3)) {
      for (BFloat16 one : at_root) EXPECT_EQ(static_cast<float>(one), 260.0F);
    }
  });
}

// ---- parts

TEST(PartialSums, OneElementAtATimeInTheGivenOrder) {
  const std::vector<float> a{0.0F, -0.0F, 1.0F}, b{-0.0F, 0.0F, 2.0F};
  std::vector<float> smallest(3);
  combine(std::span<const float>(a), std::span<const float>(b), smallest.data(), Reduction::min);
  EXPECT_FALSE(std::signbit(smallest[0]));
  EXPECT_TRUE(std::signbit(smallest[1]));
  EXPECT_EQ(smallest[2], 1.0F);
}

TEST(PartialSums, OneNaNIsEnough) {
  constexpr float no_number = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a{no_number, 1.0F, no_number, 1.0F}, b{1.0F, no_number, no_number, 2.0F};
  for (Reduction reduction : {Reduction::min, Reduction::max, Reduction::sum}) {
    std::vector<float> into(4);
    combine(std::span<const float>(a), std::span<const float>(b), into.data(), reduction);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(into[i])) << i;
    EXPECT_FALSE(std::isnan(into[3]));
  }
}

TEST(TreePlace, EveryRankIsTheChildOfOne) {
  const std::vector<RankId> members{RankId(1), RankId(4), RankId(5), RankId(7), RankId(8)};
  for (std::size_t arity : {1u, 2u, 4u}) {
    for (RankId top : members) {
      std::size_t children = 0;
      for (RankId self : members) {
        const TreePlace place = tree_place(members, self, top, arity);
        EXPECT_EQ(place.parent.has_value(), self != top);
        EXPECT_LE(place.children.size(), arity);
        children += place.children.size();
        for (RankId child : place.children) {
          EXPECT_EQ(tree_place(members, child, top, arity).parent, self);
        }
      }
      EXPECT_EQ(children, members.size() - 1);
    }
  }
}

TEST(Scratch, GrowsAndKeeps) {
  Scratch scratch;
  std::byte* const small = scratch.slot(2, 100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small) % 64, 0u);
  EXPECT_EQ(scratch.slot(2, 50), small);
  std::byte* const large = scratch.slot(2, 100000);
  std::memset(large, 1, 100000);
  EXPECT_EQ(scratch.slot(2, 100000), large);
  EXPECT_THROW(scratch.slot(scratch_slots::count, 1), Error);
}

}  // namespace
}  // namespace heteroperf
