#include <gtest/gtest.h>

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"
#include "tests/unit/runners/comm/disagreement_cases.hpp"

namespace heteroperf {
namespace {

// ---- what every transport must do

template <class Case>
std::string name_of(const testing::TestParamInfo<std::tuple<Case, int>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param));
}

template <class Case>
auto on_ranks(std::span<const Case> cases) {
  return testing::Combine(testing::ValuesIn(cases.begin(), cases.end()),
                          testing::Values(1, 2, 3, 4, 7));
}

class EveryTransport : public testing::TestWithParam<std::tuple<CommunicatorCase, int>> {};

TEST_P(EveryTransport, OnThreads) {
  const CommunicatorCase& one = std::get<0>(GetParam());
  run_on_threads(std::get<1>(GetParam()), {}, [&](World& world) { run_case(one, world); });
}

INSTANTIATE_TEST_SUITE_P(Threads, EveryTransport, on_ranks(communicator_cases()),
                         name_of<CommunicatorCase>);

class EveryWorld : public testing::TestWithParam<std::tuple<WorldCase, int>> {};

TEST_P(EveryWorld, OnThreads) {
  const WorldCase& one = std::get<0>(GetParam());
  run_on_threads(std::get<1>(GetParam()), {}, [&](World& world) { run_case(one, world); });
}

INSTANTIATE_TEST_SUITE_P(Threads, EveryWorld, on_ranks(world_cases()), name_of<WorldCase>);

// ---- failure

/// Runs `body` on the ranks; returns what each rank's PeerError said, empty where it saw none.
std::vector<std::string> peer_errors(int ranks, const std::function<void(World&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  try {
    run_on_threads(ranks, {}, [&](World& world) {
      try {
        body(world);
      } catch (const PeerError& error) {
        texts[world.communicator->rank().index()] = error.what();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  return texts;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Every way to wait for rank 1, which never comes.
struct Wait {
  const char* name;
  void (*wait)(World& world);
};

const Wait waits[] = {
    {"all_reduce",
     [](World& world) {
       std::vector<float> values(100000);
       world.communicator->all_reduce(std::span<float>(values));
     }},
    {"broadcast",
     [](World& world) {
       std::vector<float> values(10);
       world.communicator->broadcast(std::span<float>(values), RankId(1));
     }},
    {"all_gather",
     [](World& world) {
       std::vector<float> all(static_cast<std::size_t>(world.communicator->size()));
       world.communicator->all_gather(std::span<const float>(all.data(), 1), std::span<float>(all));
     }},
    {"reduce_scatter",
     [](World& world) {
       std::vector<float> all(static_cast<std::size_t>(world.communicator->size()));
       world.communicator->reduce_scatter(std::span<const float>(all),
                                          std::span<float>(all.data(), 1));
     }},
    {"reduce",
     [](World& world) {
       std::vector<float> values(100000);
       const MutableBuffer all = std::span<float>(values);
       world.communicator->reduce(all, all, RankId(0));
     }},
    {"all_to_all",
     [](World& world) {
       const std::vector<std::size_t> each(static_cast<std::size_t>(world.communicator->size()), 1);
       std::vector<float> local(each.size()), received(each.size());
       world.communicator->all_to_all(std::span<const float>(local), each,
                                      std::span<float>(received), each);
     }},
    {"barrier", [](World& world) { world.communicator->barrier(); }},
    {"split", [](World& world) { world.communicator->split(0, 0); }},
    {"receive",
     [](World& world) {
       std::vector<float> values(10);
       world.communicator->receive(std::span<float>(values), RankId(1));
     }},
    {"send",
     [](World& world) {
       std::vector<float> values(100000);
       world.communicator->send(std::span<const float>(values), RankId(1));
     }},
    {"receive of 10 f32",
     [](World& world) {
       std::vector<float> values(10);
       auto other = world.communicator->start_receive(std::span<float>(values), RankId(1), 1);
       auto transfer = world.communicator->start_receive(std::span<float>(values), RankId(1));
       while (!transfer->test()) {
       }
     }},
    {"send of 100000 f32",
     [](World& world) {
       std::vector<float> values(100000);
       const Outgoing sends[] = {{std::span<const float>(values), RankId(1), 0}};
       world.communicator->exchange(sends, {});
     }},
};

class EveryWait : public testing::TestWithParam<Wait> {};

TEST_P(EveryWait, EndsWhenAPeerThrows) {
  const auto texts = peer_errors(3, [](World& world) {
    if (world.communicator->rank() == RankId(1)) throw std::runtime_error("no more memory");
    GetParam().wait(world);
  });
  for (int rank : {0, 2}) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(says(text, "rank 1 failed during ")) << text;
    EXPECT_TRUE(says(text, GetParam().name)) << text;
    EXPECT_TRUE(says(text, "no more memory")) << text;
  }
}

TEST_P(EveryWait, EndsWhenAPeerHasFinished) {
  const auto texts = peer_errors(3, [](World& world) {
    if (world.communicator->rank() != RankId(1)) GetParam().wait(world);
  });
  for (int rank : {0, 2}) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(says(text, "rank 1 has finished")) << text;
  }
}

TEST_P(EveryWait, EndsWhenAPeerAborts) {
  const auto texts = peer_errors(2, [](World& world) {
    if (world.communicator->rank() == RankId(1)) {
      world.control->abort({RankId(1), ErrorKind::run_failed, "loss is NaN"});
    } else {
      GetParam().wait(world);
    }
  });
  EXPECT_TRUE(says(texts[0], "loss is NaN")) << texts[0];
}

INSTANTIATE_TEST_SUITE_P(Threads, EveryWait, testing::ValuesIn(waits), [](const auto& wait) {
  std::string name = wait.param.name;
  std::ranges::replace(name, ' ', '_');
  return name;
});

// ---- transfers

/// Nobody touches the buffers of a transfer that is gone.
TEST(ThreadTransfers, MayBeDroppedAtAnyMoment) {
  run_on_threads(2, {}, [](World& world) {
    Communicator& comm = *world.communicator;
    const RankId peer(1 - comm.rank().value());
    for (std::size_t count : {std::size_t{10}, std::size_t{500000}}) {
      for (int round = 0; round < 20; ++round) {
        {
          std::vector<float> values(count, 1.0F), received(count);
          auto in = comm.start_receive(std::span<float>(received), peer, round % 3);
          if (round % 4 == 3) comm.barrier();
          // A small send is on its way for good; only one of the two may be dropped unmet.
          if (count > 1000 || round % 2 == 0) {
            auto out = comm.start_send(std::span<const float>(values), peer, round % 3);
            if (count < 1000) in->wait();
          }
        }
        comm.barrier();
      }
    }
    std::int32_t local = comm.rank().value(), other = -1;
    auto in = comm.start_receive(std::span<std::int32_t>(&other, 1), peer, 7);
    comm.send(std::span<const std::int32_t>(&local, 1), peer, 7);
    in->wait();
    EXPECT_EQ(other, 1 - local);
  });
}

TEST(ThreadTransfers, ToOneselfNeedTheirOtherSideFirst) {
  const auto body = [](World& world) {
    std::vector<float> values(5000, 3.0F), copy(5000);
    auto in = world.communicator->start_receive(std::span<float>(copy), RankId(0));
    world.communicator->send(std::span<const float>(values), RankId(0));
    in->wait();
    EXPECT_EQ(copy, values);
    EXPECT_THROW(world.communicator->send(std::span<const float>(values), RankId(0)), Error);
    EXPECT_THROW(world.communicator->receive(std::span<float>(copy), RankId(0)), Error);
    EXPECT_THROW(world.communicator->start_send(std::span<const float>(values), RankId(0), 4096),
                 Error);
  };
  run_on_threads(1, {}, body);
}

// ---- numbers

/// The bits of a sum are those of adding rank after rank.
TEST(ThreadCollectives, SumsFollowTheOrderOfRanks) {
  run_on_threads(5, {}, [](World& world) {
    Communicator& comm = *world.communicator;
    const auto awkward = [](int rank, std::size_t i) {
      const std::uint64_t bits = random_bits(11, rank, i);
      return std::ldexp(static_cast<float>(to_unit(bits) - 0.5), static_cast<int>(bits % 24));
    };
    for (std::size_t count : {std::size_t{33}, std::size_t{100001}}) {
      std::vector<float> values(count), expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = awkward(comm.rank().value(), i);
        expected[i] = awkward(0, i);
        for (int r = 1; r < comm.size(); ++r) expected[i] += awkward(r, i);
      }
      comm.all_reduce(std::span<float>(values));
      EXPECT_EQ(values, expected) << count;
    }
  });
}

// ---- memory

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool allocator_tells = false;  // a sanitizer's own
#else
constexpr bool allocator_tells = true;
#endif

std::size_t bytes_in_use() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(ThreadCollectives, TenThousandOperationsKeepNoMemory) {
  if (!allocator_tells) GTEST_SKIP() << "the sanitizer's allocator does not tell what is in use";
  std::size_t early = 0, late = 0;
  run_on_threads(3, {}, [&](World& world) {
    Communicator& comm = *world.communicator;
    for (std::uint64_t step = 0; step < 10000; ++step) {
      if (step == 2000) {
        comm.barrier();
        if (comm.rank() == RankId(0)) early = bytes_in_use();
        comm.barrier();
      }
      run_random_operation(comm, step);
    }
    comm.barrier();
    if (comm.rank() == RankId(0)) late = bytes_in_use();
    comm.barrier();
  });
  EXPECT_GT(early, 0u);
  EXPECT_LT(late, early + (1U << 20)) << "from " << early << " to " << late << " bytes";
}

// ---- ends of a run

TEST(RunOnThreads, RethrowsTheFirstOwnException) {
  const auto body = [](World& world) {
    if (world.communicator->rank() == RankId(2)) throw UserError("batch=0", "must be positive");
    world.communicator->barrier();
  };
  EXPECT_THROW(run_on_threads(4, {}, body), UserError);
}

TEST(RunOnThreads, ReportsAFailureNobodyWaitedFor) {
  const auto body = [](World& world) {
    if (world.communicator->rank() == RankId(1)) {
      world.control->abort({RankId(1), ErrorKind::run_failed, "loss is NaN"});
    }
  };
  EXPECT_THROW(run_on_threads(2, {}, body), PeerError);
}

TEST(RunOnThreads, AGroupHearsOfAFailureOutsideIt) {
  const auto texts = peer_errors(4, [](World& world) {
    const int self = world.communicator->rank().value();
    auto group = world.communicator->split(self / 2, 0);
    if (self == 3) throw std::runtime_error("out of luck");
    while (self != 2) group->barrier();
    group->barrier();
  });
  for (int rank : {0, 1, 2}) {
    EXPECT_TRUE(says(texts[static_cast<std::size_t>(rank)], "out of luck")) << "rank " << rank;
  }
}

/// Ranks fail at every point of a run of collectives; sanitizers watch the buffers they leave.
TEST(RunOnThreads, RanksMayFailAtAnyMoment) {
  for (int trial = 0; trial < 60; ++trial) {
    const auto body = [&](World& world) {
      const int self = world.communicator->rank().value();
      for (int step = 0; step < 8; ++step) {
        std::vector<float> values(static_cast<std::size_t>(1000 + 3000 * (trial % 5)), 1.0F);
        if (self == trial % 3 && step == trial % 8) throw std::runtime_error("now");
        world.communicator->all_reduce(std::span<float>(values));
        EXPECT_EQ(values.back(), 3.0F);
        const RankId next((self + 1) % 3), previous((self + 2) % 3);
        if (self == 0) world.communicator->send(std::span<const float>(values), next);
        world.communicator->receive(std::span<float>(values), previous);
        if (self != 0) world.communicator->send(std::span<const float>(values), next);
      }
    };
    EXPECT_THROW(run_on_threads(3, {}, body), std::runtime_error);
  }
}

class EveryDisagreement
    : public testing::TestWithParam<std::tuple<DisagreementCase, int, std::size_t>> {};

/// Vectors that travel in what the ranks show each other, and larger ones.
TEST_P(EveryDisagreement, IsNamedOnEveryRank) {
  const DisagreementCase& one = std::get<0>(GetParam());
  const std::size_t n = std::get<2>(GetParam());
  run_on_threads(std::get<1>(GetParam()), {},
                 [&](World& world) { run_case(one, *world.communicator, n); });
}

INSTANTIATE_TEST_SUITE_P(Threads, EveryDisagreement,
                         testing::Combine(testing::ValuesIn(disagreement_cases()),
                                          testing::Values(2, 3),
                                          testing::Values(std::size_t{4}, std::size_t{20000})),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + "_" +
                                  std::to_string(std::get<1>(test.param)) + "_" +
                                  std::to_string(std::get<2>(test.param));
                         });

TEST(RunOnThreads, AHandlersExceptionEndsTheRun) {
  const auto body = [](World& world) {
    std::optional<ServiceScope> service;
    if (world.communicator->rank() == RankId(0)) {
      service.emplace(*world.control, [](RankId, std::string, ControlChannel::Reply) {
        throw std::runtime_error("the disk is full");
      });
    }
    world.control->post("a line");
    while (true) world.communicator->barrier();
  };
  try {
    run_on_threads(3, {}, body);
    ADD_FAILURE() << "nobody failed";
  } catch (const PeerError& error) {
    EXPECT_TRUE(says(error.what(), "the disk is full")) << error.what();
    EXPECT_EQ(error.failure().rank, RankId(0));
  }
}

TEST(RunOnThreads, ACallEndsWhenRankZeroHasFinished) {
  const auto body = [](World& world) {
    if (world.communicator->rank() == RankId(1)) world.control->call("anybody?");
  };
  EXPECT_THROW(run_on_threads(2, {}, body), PeerError);
}

TEST(RunOnThreads, RefusesWhatCannotRun) {
  const auto nothing = [](World&) {};
  EXPECT_THROW(run_on_threads(0, {}, nothing), UserError);
  EXPECT_THROW(run_on_threads(1, {.timeout_s = 0, .heartbeat_s = 0.5}, nothing), Error);
  EXPECT_THROW(run_on_threads(1, {.timeout_s = 1, .heartbeat_s = 0.9}, nothing), Error);
}

/// Found by the checks, before the transport itself could tell.
TEST(RunOnThreads, TheWorldIsCheckedWhereAsked) {
  std::string text;
  const auto body = [&](World& world) {
    std::vector<float> values(6);
    if (world.communicator->rank() == RankId(0)) {
      world.communicator->send(std::span<const float>(values.data(), 4), RankId(1));
      return;
    }
    try {
      world.communicator->receive(std::span<float>(values), RankId(0));
    } catch (const Error& error) {
      text = error.what();
    }
  };
  run_on_threads(2, {.check = true}, body);
  EXPECT_TRUE(says(text, "rank 1 awaits 6 f32 with tag 0 from rank 0, which sent 4 f32")) << text;
  run_on_threads(2, {}, body);
  EXPECT_TRUE(says(text, "rank 1 awaits 6 f32 with tag 0, rank 0 sent 4 f32")) << text;
}

// ---- a group of one

TEST(NullCommunicator, CopiesAndKeeps) {
  auto comm = make_null_communicator();
  std::vector<float> values{1, 2, 3}, copy(3);
  comm->all_reduce(std::span<float>(values), Reduction::average);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  comm->all_gather(std::span<const float>(values), std::span<float>(copy));
  EXPECT_EQ(copy, values);
  comm->barrier();
  EXPECT_EQ(comm->split(4, 2)->size(), 1);
  EXPECT_EQ(comm->transport(), "null");
  EXPECT_THROW(comm->send(std::span<const float>(values), RankId(0)), Error);
  EXPECT_THROW(
      comm->reduce_scatter(std::span<const float>(values), std::span<float>(copy.data(), 2)),
      Error);
}

}  // namespace
}  // namespace heteroperf
