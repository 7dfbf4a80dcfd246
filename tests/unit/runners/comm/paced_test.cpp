#include "runners/comm/paced/paced_communicator.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"

namespace heteroperf {
namespace {

struct Rates {
  double inside_latency_s = 2e-6, inside = 20e9;
  double between_latency_s = 5e-6, between = 10e9, card = 10e9;
};

/// Even ranks in cluster "a", odd ones in "b", one card each.
Cluster two_clusters(int ranks, const Rates& rates) {
  Cluster cluster;
  cluster.name = "pair";
  DeviceClass cpu;
  cpu.name = "cpu";
  cluster.classes = {cpu};
  cluster.cards = {{"card a", BytesPerSecond(rates.card)}, {"card b", BytesPerSecond(rates.card)}};
  for (int r = 0; r < ranks; ++r) {
    const std::string label = r % 2 == 0 ? "a" : "b";
    cluster.ranks.push_back({"cpu", "host " + label, label, {"card " + label}});
  }
  const LinkCurve inside(Seconds(rates.inside_latency_s), BytesPerSecond(rates.inside));
  cluster.links.push_back({"a", "a", {}, inside, "given"});
  if (ranks == 1) return cluster;
  cluster.links.push_back({"b", "b", {}, inside, "given"});
  const LinkCurve between(Seconds(rates.between_latency_s), BytesPerSecond(rates.between));
  cluster.links.push_back({"a", "b", {}, between, "given"});
  return cluster;
}

void pace(World& world, const Rates& rates) {
  const int ranks = world.communicator->size();
  world.communicator =
      make_paced_communicator(std::move(world.communicator), two_clusters(ranks, rates));
}

using CaseAndRanks = std::tuple<CommunicatorCase, int>;
class EveryTransport : public testing::TestWithParam<CaseAndRanks> {};

TEST_P(EveryTransport, Paced) {
  const CommunicatorCase& one = std::get<0>(GetParam());
  run_on_threads(std::get<1>(GetParam()), {}, [&](World& world) {
    pace(world, {});
    run_case(one, world);
  });
}

/// Those that hold for any algorithm.
std::vector<CommunicatorCase> cases_of_messages() {
  std::vector<CommunicatorCase> cases;
  for (const CommunicatorCase& one : communicator_cases()) {
    if (std::strcmp(one.name, "sums_follow_the_order_of_ranks") != 0) cases.push_back(one);
  }
  return cases;
}

std::string name_of(const testing::TestParamInfo<CaseAndRanks>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Threads, EveryTransport,
                         testing::Combine(testing::ValuesIn(cases_of_messages()),
                                          testing::Values(1, 2, 4, 5)),
                         name_of);

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// However busy the machine is, nothing is early.
TEST(Paced, MessagesAreNeverEarly) {
  const Rates rates{.between_latency_s = 2e-3, .between = 100e6, .card = 100e6};
  run_on_threads(2, {}, [&](World& world) {
    pace(world, rates);
    Communicator& comm = *world.communicator;
    std::vector<std::uint8_t> block(200000);
    for (int round = 0; round < 3; ++round) {
      comm.barrier();
      const auto begin = std::chrono::steady_clock::now();
      const RankId peer(1 - comm.rank().value());
      if (comm.rank() == RankId(0)) {
        comm.send(std::span<const std::uint8_t>(block), peer);
        EXPECT_GE(seconds_since(begin), 2e-3);  // has left
        comm.receive(std::span<std::uint8_t>(block), peer);
        EXPECT_GE(seconds_since(begin), 8e-3);  // there and back
      } else {
        comm.receive(std::span<std::uint8_t>(block), peer);
        comm.send(std::span<const std::uint8_t>(block), peer);
      }
    }
    const auto report = pace_report(comm);
    ASSERT_TRUE(report);
    EXPECT_GE(report->waits, 6u);
    EXPECT_LE(report->late_waits, report->waits);
    EXPECT_FALSE(report->cards_divided);
  });
}

TEST(Paced, TestsAreNotTrueBeforeTheTime) {
  const Rates rates{.between_latency_s = 3e-3, .between = 1e9, .card = 1e9};
  run_on_threads(2, {}, [&](World& world) {
    pace(world, rates);
    Communicator& comm = *world.communicator;
    const auto poll = [](Transfer& transfer) {
      while (!transfer.test()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    };
    const auto begin = std::chrono::steady_clock::now();
    std::int32_t value = 41;
    const RankId peer(1 - comm.rank().value());
    if (comm.rank() == RankId(0)) {
      poll(*comm.start_send(std::span<const std::int32_t>(&value, 1), peer));
      poll(*comm.start_receive(std::span<std::int32_t>(&value, 1), peer));
      EXPECT_GE(seconds_since(begin), 6e-3);
      EXPECT_EQ(value, 42);
    } else {
      const auto in = comm.start_receive(std::span<std::int32_t>(&value, 1), peer);
      poll(*in);
      in->wait();
      ++value;
      comm.send(std::span<const std::int32_t>(&value, 1), peer);
    }
  });
}

/// Ranks 0 and 2 share card a, across threads; each to its own peer.
TEST(Paced, RanksShareTheirCard) {
  const Rates rates{.between_latency_s = 0, .between = 100e6, .card = 100e6};
  std::atomic<int> waited{0};
  run_on_threads(4, {}, [&](World& world) {
    pace(world, rates);
    Communicator& comm = *world.communicator;
    std::vector<std::uint8_t> block(500000);
    const auto begin = std::chrono::steady_clock::now();
    comm.barrier();
    const int self = comm.rank().value();
    if (self % 2 == 0) {
      comm.send(std::span<const std::uint8_t>(block), RankId(self + 1));
    } else {
      comm.receive(std::span<std::uint8_t>(block), RankId(self - 1));
    }
    // 5 ms each; the second of them waits for the first.
    if (seconds_since(begin) >= 10e-3) ++waited;
    comm.barrier();
  });
  EXPECT_GE(waited, 2);
}

TEST(Paced, GroupsOfGroupsKeepTheLinks) {
  const Rates rates{.between_latency_s = 3e-3, .between = 1e9, .card = 1e9};
  run_on_threads(4, {}, [&](World& world) {
    pace(world, rates);
    // {0, 3} and {1, 2}, the larger first: each pair is of two clusters.
    const int self = world.communicator->rank().value();
    const auto pair = world.communicator->split(self == 0 || self == 3, -self);
    ASSERT_EQ(pair->size(), 2);
    const auto begin = std::chrono::steady_clock::now();
    std::int32_t value = self;
    const RankId peer(1 - pair->rank().value());
    if (pair->rank() == RankId(0)) {
      pair->send(std::span<const std::int32_t>(&value, 1), peer);
      pair->receive(std::span<std::int32_t>(&value, 1), peer);
      EXPECT_GE(seconds_since(begin), 6e-3);
      EXPECT_EQ(value, self);
    } else {
      pair->receive(std::span<std::int32_t>(&value, 1), peer);
      EXPECT_EQ(value, 3 - self);
      pair->send(std::span<const std::int32_t>(&value, 1), peer);
    }
    EXPECT_TRUE(pace_report(*pair));
  });
}

TEST(Paced, ItsCollectivesHaveTheirOwnTags) {
  run_on_threads(2, {}, [&](World& world) {
    pace(world, {});
    Communicator& comm = *world.communicator;
    const RankId peer(1 - comm.rank().value());
    std::vector<float> ones(10, 1.0F), message(3, 7.0F), received(3);
    for (int tag : {message_tags::first_inside_transport, 4095}) {
      EXPECT_THROW(comm.send(std::span<const float>(message), peer, tag), UserError);
      EXPECT_THROW(comm.receive(std::span<float>(received), peer, tag), UserError);
    }
    // As a group on top of it sends them.
    const auto sent =
        comm.start_send(std::span<const float>(message), peer, message_tags::doubling);
    comm.all_reduce(std::span<float>(ones));
    comm.receive(std::span<float>(received), peer, message_tags::doubling);
    sent->wait();
    EXPECT_EQ(ones, std::vector<float>(10, 2.0F));
    EXPECT_EQ(received, message);
  });
}

TEST(Paced, CarriesTheCollectivesOfClusters) {
  run_on_threads(4, {}, [&](World& world) {
    pace(world, {});
    HybridConfig config;
    config.clusters = clusters_by_label({"a", "a", "b", "b"}, 4);
    config.rules = {{Algorithm::ring, Bytes(0), Bytes(1000)},
                    {Algorithm::leader, Bytes(1001), Bytes(100000)}};
    const auto group = make_hybrid_communicator(std::move(world.communicator), std::move(config));
    for (std::size_t count : {100, 1000, 100000}) {
      std::vector<float> ones(count, 1.0F);
      group->all_reduce(std::span<float>(ones));
      EXPECT_EQ(ones, std::vector<float>(count, 4.0F));
    }
  });
}

TEST(Paced, RandomMessagesArriveWhole) {
  run_on_threads(3, {}, [&](World& world) {
    pace(world, {.between_latency_s = 20e-6, .between = 1e9, .card = 0.5e9});
    Communicator& comm = *world.communicator;
    RandomStream random(77);
    for (int round = 0; round < 30; ++round) {
      std::vector<std::vector<std::int32_t>> out, in;
      std::vector<Outgoing> sends;
      std::vector<Incoming> receives;
      for (int from = 0; from < 3; ++from) {
        for (int to = 0; to < 3; ++to) {
          const std::size_t count = random.below(40000);
          if (from == to) continue;
          if (from == comm.rank().value()) out.emplace_back(count, 100 * from + to);
          if (to == comm.rank().value()) in.emplace_back(count);
        }
      }
      std::size_t peer = 0;
      for (int r = 0; r < 3; ++r) {
        if (r == comm.rank().value()) continue;
        sends.push_back({std::span<const std::int32_t>(out[peer]), RankId(r), round});
        receives.push_back({std::span<std::int32_t>(in[peer]), RankId(r), round});
        ++peer;
      }
      comm.exchange(sends, receives);
      for (std::size_t i = 0; i < receives.size(); ++i) {
        const int expected = 100 * receives[i].from.value() + comm.rank().value();
        EXPECT_EQ(in[i], std::vector<std::int32_t>(in[i].size(), expected));
      }
    }
  });
}

TEST(Paced, APeerThatDiesEndsTheWait) {
  int peer_errors = 0;
  EXPECT_THROW(run_on_threads(2, {},
                              [&](World& world) {
                                pace(world, {});
                                Communicator& comm = *world.communicator;
                                if (comm.rank() == RankId(1)) throw UserError("no more");
                                std::vector<float> values(100000);
                                try {
                                  comm.receive(std::span<float>(values), RankId(1));
                                } catch (const PeerError&) {
                                  ++peer_errors;
                                  throw;
                                }
                              }),
               Error);
  EXPECT_EQ(peer_errors, 1);
}

/// A link that would take years, and a peer that fails meanwhile.
TEST(Paced, AFailureWakesASleeper) {
  const Rates rates{.between = 1e-6, .card = 0};
  int woken = 0;
  EXPECT_THROW(run_on_threads(2, {},
                              [&](World& world) {
                                auto group = world.communicator->split(0, 0);
                                const auto comm = make_paced_communicator(
                                    std::move(group), two_clusters(2, rates), world.control);
                                std::vector<float> values(10);
                                if (comm->rank() == RankId(1)) {
                                  const auto coming =
                                      comm->start_receive(std::span<float>(values), RankId(0));
                                  std::this_thread::sleep_for(std::chrono::milliseconds(200));
                                  throw UserError("no more");
                                }
                                try {
                                  comm->send(std::span<const float>(values), RankId(1));
                                } catch (const PeerError& error) {
                                  EXPECT_EQ(error.failure().rank, RankId(1));
                                  ++woken;
                                  throw;
                                }
                              }),
               UserError);
  EXPECT_EQ(woken, 1);
}

TEST(Paced, AStopEndsALongSleep) {
  const Rates rates{.between = 1e-6, .card = 0};
  std::atomic<int> stopped{0};
  EXPECT_THROW(run_on_threads(2, {},
                              [&](World& world) {
                                const auto comm =
                                    make_paced_communicator(world.communicator->split(0, 0),
                                                            two_clusters(2, rates), world.control);
                                std::vector<float> values(10);
                                if (comm->rank() == RankId(1))
                                  world.control->request_stop("enough");
                                try {
                                  if (comm->rank() == RankId(0)) {
                                    comm->send(std::span<const float>(values), RankId(1));
                                  } else {
                                    comm->receive(std::span<float>(values), RankId(0));
                                  }
                                } catch (const Error& error) {
                                  stopped += error.kind() == ErrorKind::interrupted;
                                  throw;
                                }
                              }),
               Error);
  EXPECT_GE(stopped, 1);
}

TEST(Paced, RefusesAClusterOfAnotherSize) {
  run_on_threads(2, {}, [&](World& world) {
    try {
      make_paced_communicator(world.communicator->split(0, 0), two_clusters(3, {}));
      ADD_FAILURE() << "accepted";
    } catch (const UserError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("'pair' has 3 ranks, the run has 2"), std::string::npos) << text;
    }
  });
}

TEST(Paced, RefusesAMissingLink) {
  run_on_threads(2, {}, [&](World& world) {
    Cluster cluster = two_clusters(2, {});
    cluster.links.pop_back();
    EXPECT_THROW(make_paced_communicator(world.communicator->split(0, 0), cluster), UserError);
  });
}

TEST(Paced, OthersHaveNoReport) {
  run_on_threads(1, {}, [&](World& world) { EXPECT_FALSE(pace_report(*world.communicator)); });
}

}  // namespace
}  // namespace heteroperf
