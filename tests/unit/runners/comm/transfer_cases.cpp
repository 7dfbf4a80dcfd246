#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"
#include "tests/unit/runners/comm/typed_values.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t counts[] = {0, 1, 7, 513, 4097, 65537};

using TransferList = std::vector<std::unique_ptr<Transfer>>;

RankId next_of(const Communicator& comm) { return RankId((comm.rank().value() + 1) % comm.size()); }
RankId previous_of(const Communicator& comm) {
  return RankId((comm.rank().value() + comm.size() - 1) % comm.size());
}

/// Every rank to its neighbour, so that no two ranks wait for each other's send.
void ring_of_messages(Communicator& comm) {
  if (comm.size() == 1) return;
  for (DataType type : all_types) {
    for (std::size_t count : counts) {
      const TypedValues sent = samples(type, comm.rank().value(), count);
      TypedValues received(type, count);
      if (comm.rank() == RankId(0)) comm.send(sent.buffer(), next_of(comm), 3);
      comm.receive(received.buffer(), previous_of(comm), 3);
      if (comm.rank() != RankId(0)) comm.send(sent.buffer(), next_of(comm), 3);
      EXPECT_EQ(received.bytes(), samples(type, previous_of(comm).value(), count).bytes())
          << "count " << count;
    }
  }
}

void messages_match_by_tag_in_order(Communicator& comm) {
  if (comm.size() == 1) return;
  const std::pair<int, std::int32_t> sent[] = {{5, 50}, {3071, 60}, {5, 51}, {3071, 61}, {0, 1}};
  const std::pair<int, std::int32_t> awaited[] = {{0, 1}, {3071, 60}, {3071, 61}, {5, 50}, {5, 51}};
  if (comm.rank() == RankId(0)) {
    for (int to = 1; to < comm.size(); ++to) {
      TransferList transfers;
      for (const auto& [tag, value] : sent) {
        transfers.push_back(
            comm.start_send(std::span<const std::int32_t>(&value, 1), RankId(to), tag));
      }
      wait_all(transfers);
    }
  } else {
    for (const auto& [tag, expected] : awaited) {
      std::int32_t value = 0;
      comm.receive(std::span<std::int32_t>(&value, 1), RankId(0), tag);
      EXPECT_EQ(value, expected) << "tag " << tag;
    }
  }
}

void messages_from_several_ranks(Communicator& comm) {
  const std::size_t count = 20000;
  if (comm.rank() != RankId(0)) {
    comm.send(samples(DataType::f64, comm.rank().value(), count).buffer(), RankId(0), 9);
    return;
  }
  for (int from = comm.size() - 1; from > 0; --from) {
    TypedValues values(DataType::f64, count);
    comm.receive(values.buffer(), RankId(from), 9);
    EXPECT_EQ(values.bytes(), samples(DataType::f64, from, count).bytes()) << "from " << from;
  }
}

/// All ranks send large messages to all others before any of them receives.
void sends_may_start_first(Communicator& comm) {
  const std::size_t count = 200003;
  const TypedValues local = samples(DataType::f32, comm.rank().value(), count);
  std::vector<TypedValues> received(static_cast<std::size_t>(comm.size()), {DataType::f32, count});
  TransferList transfers;
  for (int r = 0; r < comm.size(); ++r) {
    if (r != comm.rank().value())
      transfers.push_back(comm.start_send(local.buffer(), RankId(r), 7));
  }
  for (int r = 0; r < comm.size(); ++r) {
    if (r == comm.rank().value()) continue;
    MutableBuffer buffer = received[static_cast<std::size_t>(r)].buffer();
    transfers.push_back(comm.start_receive(buffer, RankId(r), 7));
  }
  wait_all(transfers);
  for (int r = 0; r < comm.size(); ++r) {
    if (r == comm.rank().value()) continue;
    EXPECT_EQ(received[static_cast<std::size_t>(r)].bytes(),
              samples(DataType::f32, r, count).bytes());
  }
}

/// The sizes of many messages to one peer: small and large mixed.
std::size_t message_count(std::size_t k) { return random_bits(5, k) % 3 == 0 ? 40000 + k : k; }

/// 100 messages with tags of their own are waited for in an order of each rank's own.
void waits_in_any_order(Communicator& comm) {
  if (comm.size() == 1) return;
  constexpr std::size_t messages = 100;
  std::vector<TypedValues> sent, received;
  TransferList transfers;
  for (std::size_t k = 0; k < messages; ++k) {
    sent.push_back(samples(DataType::f32, comm.rank().value(), message_count(k)));
    received.emplace_back(DataType::f32, message_count(k));
  }
  for (std::size_t k = 0; k < messages; ++k) {
    transfers.push_back(
        comm.start_receive(received[k].buffer(), previous_of(comm), static_cast<int>(k)));
    transfers.push_back(comm.start_send(std::as_const(sent[messages - 1 - k]).buffer(),
                                        next_of(comm), static_cast<int>(messages - 1 - k)));
  }
  RandomStream random(static_cast<std::uint64_t>(comm.rank().value()));
  while (!transfers.empty()) {
    std::swap(transfers[random.below(transfers.size())], transfers.back());
    transfers.back()->wait();
    transfers.pop_back();
  }
  for (std::size_t k = 0; k < messages; ++k) {
    EXPECT_EQ(received[k].bytes(),
              samples(DataType::f32, previous_of(comm).value(), message_count(k)).bytes())
        << k;
  }
}

/// test() alone brings every transfer to its end; afterwards it keeps saying so.
void tests_instead_of_waits(Communicator& comm) {
  if (comm.size() == 1) return;
  for (std::size_t count : counts) {
    const TypedValues sent = samples(DataType::i32, comm.rank().value(), count);
    TypedValues received(DataType::i32, count);
    auto in = comm.start_receive(received.buffer(), previous_of(comm), 2);
    auto out = comm.start_send(sent.buffer(), next_of(comm), 2);
    while (!out->test() || !in->test()) {
    }
    EXPECT_TRUE(in->test());
    in->wait();
    EXPECT_EQ(received.bytes(), samples(DataType::i32, previous_of(comm).value(), count).bytes())
        << count;
  }
}

/// Every rank with every other, several messages each way, as one group.
void exchanges(Communicator& comm) {
  constexpr int messages = 3;
  for (std::size_t count : counts) {
    std::vector<TypedValues> sent, received;
    std::vector<Outgoing> sends;
    std::vector<Incoming> receives;
    const auto places = static_cast<std::size_t>(comm.size() * messages);
    sent.reserve(places);
    received.reserve(places);
    for (int peer = 0; peer < comm.size(); ++peer) {
      if (peer == comm.rank().value()) continue;
      for (int k = 0; k < messages; ++k) {
        sent.push_back(samples(DataType::f16, comm.rank().value() + k, count));
        received.emplace_back(DataType::f16, count);
        sends.push_back({sent.back().buffer(), RankId(peer), k});
        receives.push_back({received.back().buffer(), RankId(peer), k});
      }
    }
    comm.exchange(sends, receives);
    for (std::size_t i = 0; i < receives.size(); ++i) {
      const int seed = receives[i].from.value() + receives[i].tag;
      EXPECT_EQ(received[i].bytes(), samples(DataType::f16, seed, count).bytes()) << count;
    }
  }
  comm.exchange({}, {});
}

/// Collectives run while messages of the same communicator are on their way.
void collectives_between_start_and_wait(Communicator& comm) {
  if (comm.size() == 1) return;
  for (std::size_t count : counts) {
    const TypedValues sent = samples(DataType::f64, comm.rank().value(), count);
    TypedValues received(DataType::f64, count), sums = sent;
    auto out = comm.start_send(sent.buffer(), next_of(comm), 11);
    comm.all_reduce(sums.buffer());
    auto in = comm.start_receive(received.buffer(), previous_of(comm), 11);
    comm.barrier();
    auto group = comm.split(comm.rank().value() % 2, 0);
    group->barrier();
    in->wait();
    out->wait();
    EXPECT_EQ(sums.wrong([&](std::size_t i) {
      return reduced(DataType::f64, comm.size(), i, Reduction::sum);
    }),
              0u);
    EXPECT_EQ(received.bytes(), samples(DataType::f64, previous_of(comm).value(), count).bytes());
  }
}

/// A tag that nobody else uses: what is left of the message disturbs no later one.
void a_wrong_count_is_found(Communicator& comm) {
  if (comm.size() == 1) return;
  constexpr int tag = 3001;
  std::vector<float> values(4);
  if (comm.rank() == RankId(1)) comm.send(std::span<const float>(values.data(), 3), RankId(0), tag);
  if (comm.rank() == RankId(0)) {
    EXPECT_THROW(comm.receive(std::span<float>(values), RankId(1), tag), Error);
  }
}

constexpr CommunicatorCase cases[] = {
    {"ring_of_messages", ring_of_messages},
    {"messages_match_by_tag_in_order", messages_match_by_tag_in_order},
    {"messages_from_several_ranks", messages_from_several_ranks},
    {"sends_may_start_first", sends_may_start_first},
    {"waits_in_any_order", waits_in_any_order},
    {"tests_instead_of_waits", tests_instead_of_waits},
    {"exchanges", exchanges},
    {"collectives_between_start_and_wait", collectives_between_start_and_wait},
    {"a_wrong_count_is_found", a_wrong_count_is_found},
};

}  // namespace

std::span<const CommunicatorCase> transfer_cases() { return cases; }

}  // namespace heteroperf
