#include "runners/comm/relay/relay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/comm/paced/paced_communicator.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/comm/mock_copier.hpp"

namespace heteroperf {
namespace {

constexpr MockCopier::Pace at_once;

std::vector<std::byte> pattern(int rank, std::size_t bytes) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    values[i] = static_cast<std::byte>(random_bits(5, rank, i));
  }
  return values;
}

DeviceBytes device(std::vector<std::byte>& values) { return {values.data(), values.size()}; }
template <class T>
DeviceBytes device(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}

RelayConfig in_chunks(std::uint64_t chunk, int slots = 4) {
  RelayConfig config;
  config.chunk = Bytes(chunk);
  config.slots = slots;
  return config;
}

// ---- content

struct Shape {
  std::size_t bytes;
  RelayConfig sender, receiver;
};

void check_relay(const Shape& shape) {
  run_on_threads(2, {}, [&](World& world) {
    MockCopier copier("mock", at_once, at_once);
    const bool sends = world.communicator->rank() == RankId(1);
    Relay relay(*world.communicator, copier, sends ? shape.sender : shape.receiver);
    for (int round = 0; round < 2; ++round) {
      auto values = pattern(sends ? round : 7, shape.bytes);
      if (sends) {
        relay.send(device(values), RankId(0));
      } else {
        relay.receive(device(values), RankId(1));
        EXPECT_EQ(values, pattern(round, shape.bytes));
      }
    }
  });
}

TEST(Relay, CarriesEveryByte) {
  for (std::size_t bytes : {0, 1, 7, 8, 9, 100, 4096, 100001, 1 << 20}) {
    for (std::uint64_t chunk : {64, 1000, 4096, 300000, 1 << 22}) {
      if (bytes / chunk > 2000) continue;
      for (int slots : {3, 4, 16}) {
        SCOPED_TRACE(testing::Message() << bytes << " in " << chunk << ", slots " << slots);
        check_relay({bytes, in_chunks(chunk, slots), in_chunks(chunk, slots)});
      }
    }
  }
}

TEST(Relay, InChunksOfTheUsualSizeToo) {
  for (std::size_t bytes : {0, 1, 100001, 1 << 20}) check_relay({bytes, {}, {}});
}

TEST(Relay, SidesMayDiffer) {
  RandomStream random(9);
  for (int trial = 0; trial < 40; ++trial) {
    const auto config = [&] {
      return in_chunks(1 + random.below(5000), 3 + static_cast<int>(random.below(9)));
    };
    check_relay({5001 + random.below(200000), config(), config()});
  }
}

TEST(Relay, GoesAroundARing) {
  run_on_threads(3, {}, [](World& world) {
    Communicator& comm = *world.communicator;
    MockCopier copier("mock", at_once, at_once);
    Relay relay(comm, copier, in_chunks(1000, 3));
    const int self = comm.rank().value(), next = (self + 1) % 3, before = (self + 2) % 3;
    auto out = pattern(self, 50001);
    std::vector<std::byte> in(out.size());
    relay.exchange(device(out), RankId(next), device(in), RankId(before));
    EXPECT_EQ(in, pattern(before, out.size()));
  });
}

TEST(Relay, ExchangesUnlikeSizesWithOneRank) {
  run_on_threads(2, {}, [](World& world) {
    MockCopier copier("mock", at_once, at_once);
    Relay relay(*world.communicator, copier, in_chunks(1000, 3));
    const int self = world.communicator->rank().value();
    const RankId other(1 - self);
    auto out = pattern(self, self == 0 ? 50001 : 700);
    std::vector<std::byte> in(self == 0 ? 700 : 50001);
    relay.exchange(device(out), other, device(in), other);
    EXPECT_EQ(in, pattern(1 - self, in.size()));
  });
}

template <class T>
void check_addition(Reduction reduction, T (*combine)(T, T)) {
  run_on_threads(2, {}, [&](World& world) {
    MockCopier copier("mock", at_once, at_once);
    Relay relay(*world.communicator, copier, in_chunks(4096, 3));
    constexpr std::size_t count = 20003;
    const auto value = [](int rank, std::size_t i) {
      return static_cast<T>(static_cast<float>(random_bits(2, rank, i) % 100) - 50.0F);
    };
    const int self = world.communicator->rank().value();
    std::vector<T> values(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = value(self, i);
      expected[i] = combine(value(0, i), value(1, i));
    }
    if (self == 0) return relay.send(device(values), RankId(1));
    relay.receive_add(device(values), data_type_of<T>(), RankId(0), reduction);
    EXPECT_EQ(values, expected);
  });
}

TEST(Relay, AddsWhatArrives) {
  check_addition<float>(Reduction::sum, [](float a, float b) { return a + b; });
  check_addition<std::int32_t>(Reduction::max, [](int a, int b) { return std::max(a, b); });
  check_addition<double>(Reduction::min, [](double a, double b) { return std::min(a, b); });
  check_addition<BFloat16>(Reduction::sum, [](BFloat16 a, BFloat16 b) {
    return BFloat16(static_cast<float>(a) + static_cast<float>(b));
  });
}

// ---- back-pressure

/// Counts what has been read on the one side and written on the other.
class CountingCopier final : public DeviceCopier {
 public:
  CountingCopier(std::atomic<int>& reads, std::atomic<int>& writes, const MockCopier::Pace& write)
      : reads_(reads), writes_(writes), inner_("counting", at_once, write) {}
  std::string name() const override { return inner_.name(); }
  Ticket start_read(const std::byte* from, std::span<std::byte> host) override {
    most_ahead = std::max(most_ahead, ++reads_ - writes_.load());
    return inner_.start_read(from, host);
  }
  Ticket start_write(std::span<const std::byte> host, std::byte* to) override {
    return inner_.start_write(host, to);
  }
  bool done(Ticket copy) override {
    // Of a receiver, every copy is a write.
    const bool ended = inner_.done(copy);
    if (ended && counts_writes) ++writes_;
    return ended;
  }

  std::shared_ptr<std::byte[]> host_memory(std::size_t bytes) override {
    staging += bytes;
    return inner_.host_memory(bytes);
  }

  int most_ahead = 0;
  std::size_t staging = 0;
  bool counts_writes = false;

 private:
  std::atomic<int>& reads_;
  std::atomic<int>& writes_;
  MockCopier inner_;
};

TEST(Relay, ASlowReceiverHoldsTheSenderBack) {
  std::atomic<int> reads{0}, writes{0};
  run_on_threads(2, {}, [&](World& world) {
    const bool sends = world.communicator->rank() == RankId(0);
    const MockCopier::Pace slow{100e-6, 1e-9};
    CountingCopier copier(reads, writes, slow);
    copier.counts_writes = !sends;
    constexpr std::uint64_t chunk = 1000;
    Relay relay(*world.communicator, copier, in_chunks(chunk, sends ? 3 : 5));
    auto values = pattern(0, 200 * chunk);
    if (sends) {
      relay.send(device(values), RankId(1));
      EXPECT_LE(copier.most_ahead, 3 + 5);
      EXPECT_GE(copier.most_ahead, 3);
      EXPECT_EQ(copier.staging, 3 * chunk);
    } else {
      std::vector<std::byte> received(values.size());
      relay.receive(device(received), RankId(0));
      EXPECT_EQ(received, values);
      EXPECT_EQ(copier.staging, 5 * chunk);
    }
  });
  EXPECT_EQ(reads, 200);
  EXPECT_EQ(writes, 200);
}

/// Throttled copies on both sides, a throttled link between: the bytes are right, and nothing is
/// earlier than the slowest stage allows.
TEST(Relay, ThrottledStages) {
  const BytesPerSecond rate(50e6);
  Cluster cluster;
  cluster.classes.emplace_back().name = "mock";
  cluster.ranks = {{"mock", "a", "a", {}}, {"mock", "b", "b", {}}};
  const LinkCurve curve(Seconds(20e-6), rate);
  cluster.links = {{"a", "a", {}, curve, "given"},
                   {"b", "b", {}, curve, "given"},
                   {"a", "b", {}, curve, "given"}};
  run_on_threads(2, {}, [&](World& world) {
    const auto comm = make_paced_communicator(std::move(world.communicator), cluster);
    const MockCopier::Pace pace{5e-6, 1 / rate.value()};
    MockCopier copier("mock", pace, pace);
    Relay relay(*comm, copier, in_chunks(35000));
    auto values = pattern(1, 500000);
    comm->barrier();
    const auto begin = std::chrono::steady_clock::now();
    if (comm->rank() == RankId(0)) return relay.send(device(values), RankId(1));
    std::vector<std::byte> received(values.size());
    relay.receive(device(received), RankId(0));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(received, values);
    // The sender may have left the barrier a latency earlier.
    EXPECT_GE(took.count(), 10e-3 - 1e-3);
  });
}

// ---- failures

/// A device whose copies from some number on never end, or fail.
class BrokenCopier final : public DeviceCopier {
 public:
  BrokenCopier(Ticket first_bad, bool fails) : first_bad_(first_bad), fails_(fails) {}
  std::string name() const override { return "broken:0"; }
  Ticket start_read(const std::byte*, std::span<std::byte>) override { return next_++; }
  Ticket start_write(std::span<const std::byte>, std::byte*) override { return next_++; }
  bool done(Ticket copy) override {
    if (copy >= first_bad_ && fails_) throw SystemError("copy refused", "device lost");
    return copy < first_bad_;
  }

 private:
  Ticket first_bad_, next_ = 0;
  bool fails_;
};

/// Rank 0 sends to rank 1, and one of them has a broken device. What each of them threw.
std::vector<std::string> errors_with(RankId broken, bool fails, ErrorKind& kind) {
  std::vector<std::string> texts(2);
  EXPECT_THROW(run_on_threads(2, {},
                              [&](World& world) {
                                const RankId self = world.communicator->rank();
                                MockCopier good("good", at_once, at_once);
                                BrokenCopier bad(2, fails);
                                DeviceCopier* copier = &good;
                                if (self == broken) copier = &bad;
                                RelayConfig config = in_chunks(64, 3);
                                config.timeout_s = 0.05;
                                Relay relay(*world.communicator, *copier, config);
                                auto values = pattern(0, 64 * 50);
                                const RankId peer(1 - self.value());
                                try {
                                  if (self == RankId(0)) relay.send(device(values), peer);
                                  if (self == RankId(1)) relay.receive(device(values), peer);
                                } catch (const Error& error) {
                                  texts[self.index()] = error.what();
                                  if (self == broken) kind = error.kind();
                                  throw;
                                }
                              }),
               Error);
  return texts;
}

TEST(Relay, ACopyThatNeverEndsIsNamed) {
  for (int broken : {0, 1}) {
    ErrorKind kind = ErrorKind::internal;
    const auto texts = errors_with(RankId(broken), false, kind);
    const std::string& text = texts[static_cast<std::size_t>(broken)];
    EXPECT_EQ(kind, ErrorKind::timeout);
    EXPECT_NE(text.find(broken == 0 ? "copy to the host of chunk 2 on broken:0 does not end"
                                    : "copy to the device of chunk 2 on broken:0 does not end"),
              std::string::npos)
        << text;
    EXPECT_NE(texts[static_cast<std::size_t>(1 - broken)], "");
  }
}

TEST(Relay, ACopyThatFailsEndsBothSides) {
  for (int broken : {0, 1}) {
    ErrorKind kind = ErrorKind::internal;
    const auto texts = errors_with(RankId(broken), true, kind);
    EXPECT_NE(texts[static_cast<std::size_t>(broken)].find("device lost"), std::string::npos);
    EXPECT_NE(texts[static_cast<std::size_t>(1 - broken)], "");
  }
}

TEST(Relay, APeerThatDiesEndsTheRelay) {
  int peer_errors = 0;
  EXPECT_THROW(run_on_threads(2, {},
                              [&](World& world) {
                                if (world.communicator->rank() == RankId(1)) {
                                  throw UserError("no more");
                                }
                                MockCopier copier("mock", at_once, at_once);
                                Relay relay(*world.communicator, copier, in_chunks(64));
                                auto values = pattern(0, 1000);
                                try {
                                  relay.send(device(values), RankId(1));
                                } catch (const PeerError&) {
                                  ++peer_errors;
                                  throw;
                                }
                              }),
               Error);
  EXPECT_EQ(peer_errors, 1);
}

TEST(Relay, BothSidesFindADifference) {
  std::atomic<int> found{0};
  run_on_threads(2, {}, [&](World& world) {
    MockCopier copier("mock", at_once, at_once);
    const bool sends = world.communicator->rank() == RankId(0);
    Relay relay(*world.communicator, copier, in_chunks(64));
    auto values = pattern(0, sends ? 1000 : 1001);
    try {
      if (sends) relay.send(device(values), RankId(1));
      if (!sends) relay.receive(device(values), RankId(0));
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.kind(), ErrorKind::run_failed);
      EXPECT_NE(text.find("rank 0 sends 1000 bytes"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 1 awaits 1001 bytes"), std::string::npos) << text;
      ++found;
    }
  });
  EXPECT_EQ(found, 2);
}

TEST(Relay, RefusesAWrongConfigurationAtOnce) {
  run_on_threads(1, {}, [](World& world) {
    MockCopier copier("mock", at_once, at_once);
    for (const auto& [slots, timeout_s] : {std::pair(2, 30.0), {4, 0.0}}) {
      RelayConfig config;
      config.slots = slots;
      config.timeout_s = timeout_s;
      EXPECT_THROW(Relay(*world.communicator, copier, config), Error);
    }
  });
}

}  // namespace
}  // namespace heteroperf
