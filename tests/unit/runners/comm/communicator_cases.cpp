#include "tests/unit/runners/comm/communicator_cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/comm/element_types.hpp"
#include "tests/unit/runners/comm/typed_values.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t counts[] = {0, 1, 7, 513, 4097, 9001};

enum class Place { in, out };
constexpr Place places[] = {Place::in, Place::out};

// ---- reductions

/// One call of a reduction; its text is what a failing check prints.
struct Call {
  DataType type;
  Reduction reduction;
  std::size_t count;
  Place place;

  friend std::ostream& operator<<(std::ostream& out, const Call& call) {
    return out << to_string(call.type) << " reduction " << static_cast<int>(call.reduction)
               << " count " << call.count << (call.place == Place::in ? " in place" : "");
  }
};

template <class Check>
void for_each_call(Check check) {
  for (DataType type : all_types) {
    for (Reduction reduction : all_reductions) {
      for (std::size_t count : counts) {
        for (Place place : places) check(Call{type, reduction, count, place});
      }
    }
  }
}

void all_reduce(Communicator& comm) {
  for_each_call([&](const Call& call) {
    const TypedValues before = samples(call.type, comm.rank().value(), call.count);
    TypedValues local = before, separate(call.type, call.count);
    TypedValues& result = call.place == Place::in ? local : separate;
    comm.all_reduce(local.buffer(), result.buffer(), call.reduction);
    const auto expected = [&](std::size_t i) {
      return reduced(call.type, comm.size(), i, call.reduction);
    };
    EXPECT_EQ(result.wrong(expected, tolerance(call.type, comm.size(), call.reduction)), 0u)
        << call;
    if (call.place == Place::out) {
      EXPECT_EQ(local.bytes(), before.bytes()) << call;
    }
  });
}

void reduce(Communicator& comm) {
  int trial = 0;
  for_each_call([&](const Call& call) {
    const RankId root(trial++ % comm.size());
    const bool here = comm.rank() == root;
    TypedValues local = samples(call.type, comm.rank().value(), call.count);
    TypedValues separate(call.type, here ? call.count : 0);
    TypedValues& result = call.place == Place::in ? local : separate;
    comm.reduce(local.buffer(), here ? result.buffer() : MutableBuffer(), root, call.reduction);
    const auto expected = [&](std::size_t i) {
      return here ? reduced(call.type, comm.size(), i, call.reduction)
                  : sample(call.type, comm.rank().value(), i);
    };
    EXPECT_EQ(result.wrong(expected, tolerance(call.type, comm.size(), call.reduction)), 0u)
        << call << " root " << root.value();
  });
}

void large_buffers(Communicator& comm) {
  const std::size_t count = 3454464 + 5;  // a small language model's gradients, and an odd end
  std::vector<float> values(count, static_cast<float>(comm.rank().value() + 1));
  for (std::size_t i = 0; i < count; i += 37) {
    values[i] = static_cast<float>(sample(DataType::f32, comm.rank().value(), i));
  }
  comm.all_reduce(std::span<float>(values));
  std::size_t wrong = 0;
  const auto all_ones = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  for (std::size_t i = 0; i < count; ++i) {
    const auto expected =
        i % 37 == 0 ? static_cast<float>(reduced(DataType::f32, comm.size(), i, Reduction::sum))
                    : all_ones;
    wrong += values[i] != expected;
  }
  EXPECT_EQ(wrong, 0u);
}

/// Numbers whose float sum depends on the order.
float awkward(int rank, std::size_t i) {
  const auto bits = random_bits(11, rank, i);
  const auto scale = static_cast<float>(std::uint64_t{1} << (bits % 24));
  return static_cast<float>(to_unit(bits) - 0.5) * scale;
}

void every_rank_gets_the_same_bits_each_time(Communicator& comm) {
  for (std::size_t count : {std::size_t{33}, std::size_t{100001}}) {
    std::vector<float> first(count), again(count), of_rank_0(count);
    for (std::size_t i = 0; i < count; ++i) first[i] = awkward(comm.rank().value(), i);
    again = first;
    comm.all_reduce(std::span<float>(first));
    comm.all_reduce(std::span<float>(again));
    EXPECT_EQ(first, again) << count;
    of_rank_0 = first;
    comm.broadcast(std::span<float>(of_rank_0), RankId(0));
    EXPECT_EQ(first, of_rank_0) << count;
  }
}

// ---- data on the move

void broadcast(Communicator& comm) {
  int trial = 0;
  for (DataType type : all_types) {
    for (std::size_t count : counts) {
      const RankId root(trial++ % comm.size());
      TypedValues values = samples(type, comm.rank().value(), count);
      comm.broadcast(values.buffer(), root);
      EXPECT_EQ(values.bytes(), samples(type, root.value(), count).bytes())
          << to_string(type) << " count " << count << " root " << root.value();
    }
  }
}

/// How many elements rank `r` of `ranks` has.
struct Blocks {
  const char* name;
  std::size_t (*count)(std::size_t r, std::size_t ranks);
};
constexpr Blocks block_patterns[] = {
    {"none", [](std::size_t, std::size_t) -> std::size_t { return 0; }},
    {"equal", [](std::size_t, std::size_t) -> std::size_t { return 6; }},
    {"rising", [](std::size_t r, std::size_t) { return 1 + 13 * r; }},
    {"some empty", [](std::size_t r, std::size_t) { return r % 2 * (700 + r); }},
    {"all on the last", [](std::size_t r, std::size_t n) { return r + 1 == n ? 4099UL : 0UL; }},
    {"large", [](std::size_t r, std::size_t) { return 9000 - 1000 * (r % 3); }},
};

std::vector<std::size_t> block_counts(const Blocks& pattern, const Communicator& comm) {
  std::vector<std::size_t> result(static_cast<std::size_t>(comm.size()));
  for (std::size_t r = 0; r < result.size(); ++r) result[r] = pattern.count(r, result.size());
  return result;
}

std::size_t sum_of(Counts blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), std::size_t{0});
}

void all_gather(Communicator& comm) {
  const auto self = comm.rank().index();
  for (DataType type : all_types) {
    for (const Blocks& pattern : block_patterns) {
      for (Place place : places) {
        const auto blocks = block_counts(pattern, comm);
        TypedValues local = samples(type, comm.rank().value(), blocks[self]);
        TypedValues all(type, sum_of(blocks)), expected(type, sum_of(blocks));
        const std::size_t own = sum_of(Counts(blocks).first(self));
        if (place == Place::in) all.fill(own, blocks[self], [&](auto i) { return local[i]; });
        comm.all_gather(place == Place::in ? all.buffer().part(own, blocks[self]) : local.buffer(),
                        all.buffer(), blocks);
        std::size_t begin = 0;
        for (std::size_t r = 0; r < blocks.size(); ++r) {
          expected.fill(begin, blocks[r],
                        [&](auto i) { return sample(type, static_cast<int>(r), i); });
          begin += blocks[r];
        }
        EXPECT_EQ(all.bytes(), expected.bytes()) << to_string(type) << ' ' << pattern.name;
      }
    }
  }
}

void reduce_scatter(Communicator& comm) {
  const auto self = comm.rank().index();
  for (DataType type : all_types) {
    for (Reduction reduction : all_reductions) {
      for (const Blocks& pattern : block_patterns) {
        for (Place place : places) {
          const auto blocks = block_counts(pattern, comm);
          const std::size_t own = sum_of(Counts(blocks).first(self));
          TypedValues all = samples(type, comm.rank().value(), sum_of(blocks));
          TypedValues local(type, blocks[self]);
          const MutableBuffer block = all.buffer().part(own, blocks[self]);
          comm.reduce_scatter(all.buffer(), place == Place::in ? block : local.buffer(), blocks,
                              reduction);
          if (place == Place::in) {
            local.fill(0, blocks[self], [&](auto i) { return all[own + i]; });
          }
          const auto expected = [&](std::size_t i) {
            return reduced(type, comm.size(), own + i, reduction);
          };
          EXPECT_EQ(local.wrong(expected, tolerance(type, comm.size(), reduction)), 0u)
              << to_string(type) << ' ' << pattern.name << ' ' << static_cast<int>(reduction);
        }
      }
    }
  }
}

void blocks_of_one_size(Communicator& comm) {
  for (std::size_t count : counts) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const TypedValues local = samples(DataType::i64, comm.rank().value(), count);
    TypedValues all(DataType::i64, count * ranks), sums(DataType::i64, count);
    comm.all_gather(local.buffer(), all.buffer());
    EXPECT_EQ(all.wrong([&](std::size_t i) {
      return sample(DataType::i64, static_cast<int>(i / count), i % count);
    }),
              0u)
        << count;
    comm.reduce_scatter(all.buffer(), sums.buffer());
    EXPECT_EQ(sums.wrong([&](std::size_t i) {
      return comm.size() * sample(DataType::i64, comm.rank().value(), i);
    }),
              0u)
        << count;
  }
}

void all_to_all(Communicator& comm) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto self = comm.rank().index();
  for (DataType type : all_types) {
    for (std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{33}, std::size_t{3001}}) {
      const auto sent = [&](std::size_t from, std::size_t to) {
        return (3 * from + 5 * to) % 4 * unit;
      };
      std::vector<std::size_t> to_each(ranks), from_each(ranks);
      for (std::size_t r = 0; r < ranks; ++r) {
        to_each[r] = sent(self, r);
        from_each[r] = sent(r, self);
      }
      const TypedValues local = samples(type, comm.rank().value(), sum_of(to_each));
      TypedValues received(type, sum_of(from_each)), expected(type, sum_of(from_each));
      comm.all_to_all(local.buffer(), to_each, received.buffer(), from_each);
      std::size_t begin = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        std::size_t first = 0;
        for (std::size_t to = 0; to < self; ++to) first += sent(r, to);
        expected.fill(begin, from_each[r],
                      [&](auto i) { return sample(type, static_cast<int>(r), first + i); });
        begin += from_each[r];
      }
      EXPECT_EQ(received.bytes(), expected.bytes()) << to_string(type) << " unit " << unit;
    }
  }
}

// ---- groups

/// The sum of the world's ranks in a group tells who is in it.
std::int64_t sum_of_ranks(Communicator& group, int world_rank) {
  std::int64_t sum = world_rank;
  group.all_reduce(std::span<std::int64_t>(&sum, 1));
  return sum;
}

void interleaved_groups(Communicator& comm) {
  const int self = comm.rank().value();
  // Odd and even ranks, the last of each first.
  auto group = comm.split(self % 2, -self);
  int expected_size = 0, expected_sum = 0, behind = 0;
  for (int r = self % 2; r < comm.size(); r += 2) {
    ++expected_size;
    expected_sum += r;
    behind += r > self;
  }
  EXPECT_EQ(group->size(), expected_size);
  EXPECT_EQ(group->rank().value(), behind);
  EXPECT_EQ(sum_of_ranks(*group, self), expected_sum);

  // A group of a group, while the parent stays in use.
  auto alone = group->split(group->rank().value(), 0);
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(sum_of_ranks(*alone, self), self);
  EXPECT_EQ(sum_of_ranks(comm, self), comm.size() * (comm.size() - 1) / 2);
}

void random_groups(Communicator& comm) {
  const int self = comm.rank().value();
  for (int trial = 0; trial < 8; ++trial) {
    const auto colour = [&](int r) { return static_cast<int>(random_bits(3, trial, r) % 3) - 1; };
    const auto key = [&](int r) { return static_cast<int>(random_bits(4, trial, r) % 2); };
    std::vector<int> ranks;
    for (int r = 0; r < comm.size(); ++r) {
      if (colour(r) == colour(self)) ranks.push_back(r);
    }
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return key(a) < key(b); });
    auto group = comm.split(colour(self), key(self));
    std::vector<std::int32_t> found(ranks.size());
    group->all_gather(std::span<const std::int32_t>(&self, 1), std::span<std::int32_t>(found));
    EXPECT_EQ(found, std::vector<std::int32_t>(ranks.begin(), ranks.end())) << "trial " << trial;
  }
}

/// Groups are independent: each does as many and as large operations as it likes.
void groups_go_their_own_ways(Communicator& comm) {
  const int self = comm.rank().value();
  auto group = comm.split(self % 3, self);
  for (int step = 0; step < 5 * (self % 3); ++step) {
    const auto count = static_cast<std::size_t>(1 + 2000 * step);
    TypedValues values = samples(DataType::f32, group->rank().value(), count);
    group->all_reduce(values.buffer());
    EXPECT_EQ(values.wrong([&](std::size_t i) {
      return reduced(DataType::f32, group->size(), i, Reduction::sum);
    }),
              0u)
        << step;
  }
  comm.barrier();
}

void random_operations(Communicator& comm) {
  for (std::uint64_t step = 0; step < 300; ++step) run_random_operation(comm, step);
}

constexpr CommunicatorCase cases[] = {
    {"all_reduce", all_reduce},
    {"reduce", reduce},
    {"large_buffers", large_buffers},
    {"every_rank_gets_the_same_bits_each_time", every_rank_gets_the_same_bits_each_time},
    {"broadcast", broadcast},
    {"all_gather", all_gather},
    {"reduce_scatter", reduce_scatter},
    {"blocks_of_one_size", blocks_of_one_size},
    {"all_to_all", all_to_all},
    {"interleaved_groups", interleaved_groups},
    {"random_groups", random_groups},
    {"groups_go_their_own_ways", groups_go_their_own_ways},
    {"random_operations", random_operations},
};

/// The cases of this file and of transfer_cases.cpp.
const std::vector<CommunicatorCase>& collected() {
  static const std::vector<CommunicatorCase> all = [] {
    std::vector<CommunicatorCase> list(std::begin(cases), std::end(cases));
    const auto transfers = transfer_cases();
    list.insert(list.end(), transfers.begin(), transfers.end());
    return list;
  }();
  return all;
}

}  // namespace

std::span<const CommunicatorCase> communicator_cases() { return collected(); }

void run_case(const CommunicatorCase& one, Communicator& comm) {
  one.run(comm);
  comm.barrier();
}

void run_case(const CommunicatorCase& one, World& world) { run_case(one, *world.communicator); }

}  // namespace heteroperf
