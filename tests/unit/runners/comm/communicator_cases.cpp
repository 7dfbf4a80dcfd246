#include "tests/unit/runners/comm/communicator_cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "metrics/random.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t counts[] = {0, 1, 7, 64, 1000, 4097, 20011};
constexpr Reduction reductions[] = {Reduction::sum, Reduction::min, Reduction::max,
                                    Reduction::average};

/// Small whole numbers, exact in every type and order; negative ones where the type has them.
template <class T>
T sample(int rank, std::size_t i) {
  const auto value = static_cast<int>(random_bits(7, rank, i) % 23);
  return static_cast<T>(std::is_unsigned_v<T> ? value : value - 11);
}

template <class T>
std::vector<T> samples(int rank, std::size_t count, std::size_t first = 0) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = sample<T>(rank, first + i);
  return values;
}

template <class T>
T reduced(int ranks, std::size_t i, Reduction reduction) {
  double result = sample<T>(0, i);
  for (int r = 1; r < ranks; ++r) {
    const double next = sample<T>(r, i);
    if (reduction == Reduction::min) {
      result = std::min(result, next);
    } else if (reduction == Reduction::max) {
      result = std::max(result, next);
    } else {
      result += next;
    }
  }
  if (reduction != Reduction::average) return static_cast<T>(result);
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<int>(result) / ranks);
  return static_cast<T>(result) / static_cast<T>(ranks);
}

/// Each rank shows its values to the others' reductions once per type, count and reduction.
template <class T>
void check_all_reduce(Communicator& comm) {
  for (Reduction reduction : reductions) {
    for (std::size_t count : counts) {
      auto values = samples<T>(comm.rank().value(), count);
      comm.all_reduce(std::span<T>(values), reduction);
      std::vector<T> expected(count);
      for (std::size_t i = 0; i < count; ++i) expected[i] = reduced<T>(comm.size(), i, reduction);
      EXPECT_EQ(values, expected) << to_string(data_type_of<T>()) << " count " << count
                                  << " reduction " << static_cast<int>(reduction);
    }
  }
}

template <class T>
void check_reduce_scatter(Communicator& comm) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto self = static_cast<std::size_t>(comm.rank().value());
  for (Reduction reduction : reductions) {
    for (std::size_t count : counts) {
      const auto all = samples<T>(comm.rank().value(), count * ranks);
      std::vector<T> mine(count), expected(count);
      comm.reduce_scatter(std::span<const T>(all), std::span<T>(mine), reduction);
      for (std::size_t i = 0; i < count; ++i) {
        expected[i] = reduced<T>(comm.size(), self * count + i, reduction);
      }
      EXPECT_EQ(mine, expected) << to_string(data_type_of<T>()) << " count " << count;
    }
  }
}

template <class T>
void check_all_gather(Communicator& comm) {
  for (std::size_t count : counts) {
    const auto mine = samples<T>(comm.rank().value(), count);
    std::vector<T> all(count * static_cast<std::size_t>(comm.size())), expected;
    comm.all_gather(std::span<const T>(mine), std::span<T>(all));
    for (int r = 0; r < comm.size(); ++r) {
      const auto block = samples<T>(r, count);
      expected.insert(expected.end(), block.begin(), block.end());
    }
    EXPECT_EQ(all, expected) << to_string(data_type_of<T>()) << " count " << count;
  }
}

template <class T>
void check_broadcast(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root) {
    for (std::size_t count : counts) {
      auto values = samples<T>(comm.rank().value(), count);
      comm.broadcast(std::span<T>(values), RankId(root));
      EXPECT_EQ(values, samples<T>(root, count)) << "root " << root << " count " << count;
    }
  }
}

#define HETEROPERF_EVERY_TYPE(check)          \
  [](World& world) {                          \
    check<float>(*world.communicator);        \
    check<double>(*world.communicator);       \
    check<std::int32_t>(*world.communicator); \
    check<std::int64_t>(*world.communicator); \
    check<std::uint8_t>(*world.communicator); \
  }

/// Numbers whose float sum depends on the order.
float awkward(int rank, std::size_t i) {
  const auto bits = random_bits(11, rank, i);
  const auto scale = static_cast<float>(std::uint64_t{1} << (bits % 24));
  return static_cast<float>(to_unit(bits) - 0.5) * scale;
}

void sums_follow_the_order_of_ranks(World& world) {
  Communicator& comm = *world.communicator;
  for (std::size_t count : {std::size_t{33}, std::size_t{300001}}) {
    std::vector<float> values(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = awkward(comm.rank().value(), i);
      expected[i] = awkward(0, i);
      for (int r = 1; r < comm.size(); ++r) expected[i] += awkward(r, i);
    }
    comm.all_reduce(std::span<float>(values));
    EXPECT_EQ(std::memcmp(values.data(), expected.data(), count * sizeof(float)), 0) << count;
  }
}

void large_buffers(World& world) {
  Communicator& comm = *world.communicator;
  const std::size_t count = 3454464 + 5;  // a small language model's gradients, and an odd end
  auto values = samples<float>(comm.rank().value(), count);
  comm.all_reduce(std::span<float>(values));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; i += i + 200 < count ? 37 : 1) {
    wrong += values[i] != reduced<float>(comm.size(), i, Reduction::sum);
  }
  EXPECT_EQ(wrong, 0u);
}

void blocks_may_be_in_place(World& world) {
  Communicator& comm = *world.communicator;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto self = static_cast<std::size_t>(comm.rank().value());
  for (std::size_t count : {std::size_t{5}, std::size_t{50000}}) {
    std::vector<double> all(count * ranks);
    const auto mine = samples<double>(comm.rank().value(), count);
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(self * count));
    const std::span<double> block(all.data() + self * count, count);
    comm.all_gather(std::span<const double>(block), std::span<double>(all));
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i], sample<double>(static_cast<int>(i / count), i % count));
    }
    std::ranges::copy(samples<double>(comm.rank().value(), count * ranks), all.begin());
    comm.reduce_scatter(std::span<const double>(all), block);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(block[i], reduced<double>(comm.size(), self * count + i, Reduction::sum));
    }
  }
}

/// Every rank to its neighbour, so that no two ranks wait for each other's send.
void ring_of_messages(World& world) {
  Communicator& comm = *world.communicator;
  const int ranks = comm.size(), self = comm.rank().value();
  if (ranks == 1) return;
  const RankId next((self + 1) % ranks), previous((self + ranks - 1) % ranks);
  for (std::size_t count : counts) {
    const auto sent = samples<float>(self, count);
    std::vector<float> received(count);
    const auto give = [&] { comm.send(std::span<const float>(sent), next, 3); };
    const auto take = [&] { comm.receive(std::span<float>(received), previous, 3); };
    if (self == 0) {
      give();
      take();
    } else {
      take();
      give();
    }
    EXPECT_EQ(received, samples<float>(previous.value(), count)) << "count " << count;
  }
}

void messages_match_by_tag_in_order(World& world) {
  Communicator& comm = *world.communicator;
  if (comm.size() == 1) return;
  const std::pair<int, std::int32_t> sent[] = {{5, 50}, {6, 60}, {5, 51}, {6, 61}, {0, 1}};
  const std::pair<int, std::int32_t> awaited[] = {{0, 1}, {6, 60}, {6, 61}, {5, 50}, {5, 51}};
  if (comm.rank() == RankId(0)) {
    for (int to = 1; to < comm.size(); ++to) {
      for (const auto& [tag, value] : sent) {
        comm.send(std::span<const std::int32_t>(&value, 1), RankId(to), tag);
      }
    }
  } else {
    for (const auto& [tag, expected] : awaited) {
      std::int32_t value = 0;
      comm.receive(std::span<std::int32_t>(&value, 1), RankId(0), tag);
      EXPECT_EQ(value, expected) << "tag " << tag;
    }
  }
}

void messages_from_several_ranks(World& world) {
  Communicator& comm = *world.communicator;
  const std::size_t count = 20000;
  if (comm.rank() != RankId(0)) {
    const auto values = samples<double>(comm.rank().value(), count);
    comm.send(std::span<const double>(values), RankId(0), 9);
    return;
  }
  for (int from = comm.size() - 1; from > 0; --from) {
    std::vector<double> values(count);
    comm.receive(std::span<double>(values), RankId(from), 9);
    EXPECT_EQ(values, samples<double>(from, count)) << "from " << from;
  }
}

void a_wrong_count_is_found(World& world) {
  Communicator& comm = *world.communicator;
  if (comm.size() == 1) return;
  std::vector<float> values(4);
  if (comm.rank() == RankId(1)) comm.send(std::span<const float>(values.data(), 3), RankId(0), 1);
  if (comm.rank() == RankId(0)) {
    EXPECT_THROW(comm.receive(std::span<float>(values), RankId(1), 1), Error);
  }
}

/// The sum of the world's ranks in a group tells who is in it.
std::int64_t sum_of_ranks(Communicator& group, int world_rank) {
  std::int64_t sum = world_rank;
  group.all_reduce(std::span<std::int64_t>(&sum, 1));
  return sum;
}

void interleaved_groups(World& world) {
  Communicator& comm = *world.communicator;
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
  EXPECT_EQ(group->transport(), comm.transport());

  // A group of a group, while the parent stays in use.
  auto alone = group->split(group->rank().value(), 0);
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(sum_of_ranks(*alone, self), self);
  EXPECT_EQ(sum_of_ranks(comm, self), comm.size() * (comm.size() - 1) / 2);
}

void random_groups(World& world) {
  Communicator& comm = *world.communicator;
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

void random_sizes(World& world) {
  Communicator& comm = *world.communicator;
  RandomStream random(41);
  for (int trial = 0; trial < 40; ++trial) {
    const std::size_t count = random.below(std::uint64_t{1} << (trial % 18));
    const RankId root(
        static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(comm.size()))));
    auto values = samples<std::int32_t>(comm.rank().value(), count);
    comm.all_reduce(std::span<std::int32_t>(values), Reduction::max);
    std::vector<std::int32_t> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] = reduced<std::int32_t>(comm.size(), i, Reduction::max);
    }
    EXPECT_EQ(values, expected) << "count " << count;
    auto told = samples<std::int32_t>(comm.rank().value(), count);
    comm.broadcast(std::span<std::int32_t>(told), root);
    EXPECT_EQ(told, samples<std::int32_t>(root.value(), count)) << "count " << count;
  }
}

// ---- the control channel

void nobody_passes_a_barrier_early(World& world) {
  int entered = 0;
  std::optional<ServiceScope> service;
  if (world.communicator->rank() == RankId(0)) {
    service.emplace(*world.control, [&](RankId, std::string message, ControlChannel::Reply reply) {
      entered += message.starts_with('e');
      reply(std::to_string(entered));
    });
  }
  world.control->call("enter");
  world.communicator->barrier();
  EXPECT_EQ(world.control->call("look"), std::to_string(world.communicator->size()));
  world.communicator->barrier();
}

void replies_may_come_later(World& world) {
  const int ranks = world.communicator->size();
  std::vector<std::pair<RankId, ControlChannel::Reply>> waiting;
  std::optional<ServiceScope> service;
  if (world.communicator->rank() == RankId(0)) {
    service.emplace(*world.control, [&](RankId from, std::string, ControlChannel::Reply reply) {
      waiting.emplace_back(from, std::move(reply));
      if (static_cast<int>(waiting.size()) < ranks) return;
      for (auto& [rank, answer] : waiting) answer("for " + std::to_string(rank.value()));
      waiting.clear();
    });
  }
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(world.control->call("and me?"),
              "for " + std::to_string(world.communicator->rank().value()));
  }
  world.communicator->barrier();
}

void posts_keep_their_order(World& world) {
  constexpr int posts = 500;
  const int ranks = world.communicator->size();
  std::vector<std::vector<std::string>> heard(static_cast<std::size_t>(ranks));
  std::optional<ServiceScope> service;
  world.control->post("0");  // waits for the handler
  if (world.communicator->rank() == RankId(0)) {
    service.emplace(*world.control,
                    [&](RankId from, std::string message, ControlChannel::Reply reply) {
                      if (reply) return reply("heard");
                      heard[static_cast<std::size_t>(from.value())].push_back(std::move(message));
                    });
  }
  for (int i = 1; i < posts; ++i) {
    // A few messages that no socket buffer takes at once.
    std::string message = std::to_string(i);
    if (i % 100 == 0) message.resize(1000000, ' ');
    world.control->post(std::move(message));
  }
  EXPECT_EQ(world.control->call("done"), "heard");
  world.communicator->barrier();
  if (world.communicator->rank() != RankId(0)) return;
  service.reset();
  for (const auto& messages : heard) {
    ASSERT_EQ(messages.size(), static_cast<std::size_t>(posts));
    for (int i = 0; i < posts; ++i) {
      EXPECT_EQ(std::stoi(messages[static_cast<std::size_t>(i)]), i);
    }
  }
}

void a_forgotten_reply_is_an_error(World& world) {
  std::optional<ServiceScope> service;
  if (world.communicator->rank() == RankId(0)) {
    service.emplace(*world.control, [](RankId, std::string, ControlChannel::Reply) {});
  }
  EXPECT_THROW(world.control->call("hello?"), PeerError);
  world.communicator->barrier();
}

void everybody_hears_of_a_stop(World& world) {
  EXPECT_FALSE(world.control->stop_requested());
  world.communicator->barrier();
  const int last = world.communicator->size() - 1;
  if (world.communicator->rank() == RankId(last)) {
    world.control->request_stop("enough");
    world.control->request_stop("more than enough");
  }
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!world.control->stop_requested() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(world.control->stop_requested(), "enough");
  EXPECT_FALSE(world.control->failure());
  world.communicator->barrier();
}

constexpr CommunicatorCase cases[] = {
    {"all_reduce", HETEROPERF_EVERY_TYPE(check_all_reduce)},
    {"reduce_scatter", HETEROPERF_EVERY_TYPE(check_reduce_scatter)},
    {"all_gather", HETEROPERF_EVERY_TYPE(check_all_gather)},
    {"broadcast", HETEROPERF_EVERY_TYPE(check_broadcast)},
    {"sums_follow_the_order_of_ranks", sums_follow_the_order_of_ranks},
    {"large_buffers", large_buffers},
    {"blocks_may_be_in_place", blocks_may_be_in_place},
    {"ring_of_messages", ring_of_messages},
    {"messages_match_by_tag_in_order", messages_match_by_tag_in_order},
    {"messages_from_several_ranks", messages_from_several_ranks},
    {"a_wrong_count_is_found", a_wrong_count_is_found},
    {"interleaved_groups", interleaved_groups},
    {"random_groups", random_groups},
    {"random_sizes", random_sizes},
    {"nobody_passes_a_barrier_early", nobody_passes_a_barrier_early},
    {"replies_may_come_later", replies_may_come_later},
    {"posts_keep_their_order", posts_keep_their_order},
    {"a_forgotten_reply_is_an_error", a_forgotten_reply_is_an_error},
    // Last: a world that was asked to stop stays so.
    {"everybody_hears_of_a_stop", everybody_hears_of_a_stop},
};

}  // namespace

std::span<const CommunicatorCase> communicator_cases() { return cases; }

void run_case(const CommunicatorCase& one, World& world) {
  one.run(world);
  // So that the next case's messages do not reach this one's handler.
  world.communicator->barrier();
}

}  // namespace heteroperf
