// Started by mpirun: every rank runs every test, in step with the others.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "metrics/base/name_table.hpp"
#include "runners/comm/mpi/mpi_backend.hpp"
#include "runners/comm/mpi_launch.hpp"
#include "runners/comm/world.hpp"
#include "tests/ranks/comm/joined_world.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"
#include "tests/unit/runners/comm/disagreement_cases.hpp"

namespace heteroperf {
namespace {

class EveryTransport : public testing::TestWithParam<CommunicatorCase> {};

TEST_P(EveryTransport, OnMpi) { run_case(GetParam(), joined_world()); }

TEST_P(EveryTransport, OnMpiMessages) {
  World world = another_world({.host_path = HostPath::messages});
  run_case(GetParam(), world);
}

TEST_P(EveryTransport, OnMpiSharedMemory) {
  World world = another_world({.host_path = HostPath::shared_memory});
  run_case(GetParam(), world);
}

/// Messages cut to pieces of a few bytes, as buffers beyond 2 GiB are cut.
TEST_P(EveryTransport, OnMpiInPieces) {
  World world = another_world({.max_message_bytes = 40000, .host_path = HostPath::messages});
  run_case(GetParam(), world);
}

/// A stop is for good, so the last case waits for the end.
auto cases_before_the_stop() {
  const auto cases = communicator_cases();
  return testing::ValuesIn(cases.begin(), cases.end() - 1);
}

INSTANTIATE_TEST_SUITE_P(Mpi, EveryTransport, cases_before_the_stop(),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(MpiWorld, KnowsItsPlace) {
  const auto launched = detect_launcher();
  ASSERT_TRUE(launched);
  EXPECT_EQ(launched->launcher, "mpirun");
  EXPECT_EQ(launched->rank, joined_world().communicator->rank().value());
  EXPECT_EQ(launched->size, joined_world().communicator->size());
}

bool goes_by(const Communicator& group, HostPath path) {
  return group.path().starts_with(std::string(to_string(path)) + " (");
}

TEST(MpiWorld, TheWayIsTheWidestAllowedAndHasAReason) {
  const Communicator& widest = *joined_world().communicator;
  if (widest.size() == 1) {
    EXPECT_EQ(widest.path(), "messages (one rank)");
    return;
  }
  EXPECT_FALSE(goes_by(widest, HostPath::messages));
  EXPECT_NE(widest.path().find("on one host"), std::string::npos);
  for (HostPath path : {HostPath::messages, HostPath::shared_memory}) {
    const World world = another_world({.host_path = path});
    EXPECT_TRUE(goes_by(*world.communicator, path));
    EXPECT_NE(world.communicator->path().find("as configured"), std::string::npos);
    EXPECT_TRUE(goes_by(*world.communicator->split(0, 0), path));
  }
}

/// One rank that allows less decides for all.
TEST(MpiWorld, RanksAgreeOnTheWay) {
  const bool last =
      joined_world().communicator->rank().value() + 1 == joined_world().communicator->size();
  const World world =
      another_world({.host_path = last ? HostPath::messages : HostPath::single_copy});
  EXPECT_TRUE(goes_by(*world.communicator, HostPath::messages));
}

/// Small ones of all kinds, so that ranks run ahead of each other as far as they may.
void many_collectives(Communicator& comm) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto self = comm.rank().index();
  const std::vector<std::size_t> ones(ranks, 1);
  std::vector<std::int64_t> all(ranks), received(ranks);
  for (std::int64_t n = 0; n < 100; ++n) {
    const auto root = static_cast<std::size_t>(n) % ranks;
    std::int64_t value = self == root ? n : -1;
    comm.broadcast(std::span<std::int64_t>(&value, 1), RankId(root));
    ASSERT_EQ(value, n);
    std::int64_t sum = 0;
    const std::int64_t local = n + static_cast<std::int64_t>(self);
    comm.reduce(std::span<const std::int64_t>(&local, 1), std::span<std::int64_t>(&sum, 1),
                RankId(root));
    const auto p = static_cast<std::int64_t>(ranks);
    ASSERT_EQ(sum, self == root ? p * n + p * (p - 1) / 2 : 0);
    for (std::size_t r = 0; r < ranks; ++r) all[r] = local * 1000 + static_cast<std::int64_t>(r);
    comm.all_to_all(std::span<const std::int64_t>(all), ones, std::span<std::int64_t>(received),
                    ones);
    for (std::size_t r = 0; r < ranks; ++r) {
      ASSERT_EQ(received[r], (n + static_cast<std::int64_t>(r)) * 1000 + local - n);
    }
  }
}

TEST(MpiWorld, RanksMayRunAhead) {
  for (HostPath path : {HostPath::messages, HostPath::shared_memory, HostPath::single_copy}) {
    many_collectives(*another_world({.host_path = path}).communicator);
  }
}

/// Collectives on memory that ranks share let messages of this rank make progress.
TEST(MpiWorld, MessagesMoveDuringCollectives) {
  Communicator& comm = *joined_world().communicator;
  if (comm.size() == 1) return;
  const int self = comm.rank().value(), next = (self + 1) % comm.size();
  const int previous = (self + comm.size() - 1) % comm.size();
  const std::vector<double> sent(300000, self);
  std::vector<double> received(sent.size());
  auto sending = comm.start_send(std::span<const double>(sent), RankId(next), 1);
  // Even ranks meet first, odd ones take their message first.
  auto receiving = comm.start_receive(std::span<double>(received), RankId(previous), 1);
  if (self % 2 == 1) receiving->wait();
  comm.barrier();
  receiving->wait();
  sending->wait();
  EXPECT_EQ(received, std::vector<double>(sent.size(), previous));
}

class Disagreement : public testing::TestWithParam<DisagreementCase> {};

/// Small data, and such as go straight from buffer to buffer.
TEST_P(Disagreement, IsNamedOnEveryRankOfAHost) {
  if (joined_world().communicator->size() == 1) GTEST_SKIP() << "nobody to disagree with";
  for (HostPath path : {HostPath::shared_memory, HostPath::single_copy}) {
    for (std::size_t n : {std::size_t{4}, std::size_t{20000}}) {
      World world = another_world({.host_path = path});
      ASSERT_FALSE(goes_by(*world.communicator, HostPath::messages)) << world.communicator->path();
      run_case(GetParam(), *world.communicator, n);
      joined_world().communicator->barrier();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Mpi, Disagreement, testing::ValuesIn(disagreement_cases()),
                         [](const auto& one) { return std::string(one.param.name); });

/// HETEROPERF_HOST_ID makes hosts of processes, for transports as for clusters.
TEST(MpiWorld, TheWayFollowsTheHostIds) {
  const int self = joined_world().communicator->rank().value();
  if (joined_world().communicator->size() == 1) GTEST_SKIP() << "one rank is on one host";
  setenv("HETEROPERF_HOST_ID", self == 0 ? "rack1" : "rack2", 1);
  const World world = another_world({.host_path = HostPath::single_copy});
  unsetenv("HETEROPERF_HOST_ID");
  EXPECT_EQ(world.communicator->path(), "messages (the ranks are on 2 hosts)");
}

/// A message of another size than its receiver awaits.
TEST(MpiWorld, MessagesThatDoNotFitAreTold) {
  Communicator& comm = *joined_world().communicator;
  if (comm.size() == 1) GTEST_SKIP() << "nobody to send to";
  std::vector<float> values(6);
  if (comm.rank() == RankId(0)) comm.send(std::span<const float>(values.data(), 4), RankId(1));
  if (comm.rank() != RankId(1)) return;
  try {
    comm.receive(std::span<float>(values), RankId(0));
    ADD_FAILURE() << "took 4 for 6";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::run_failed);
    const std::string text = error.what();
    EXPECT_NE(text.find("rank 1 awaits 24 bytes in receive of 6 f32, 16 came"), std::string::npos)
        << text;
  }
}

TEST(MpiWorld, EverybodyHearsOfAStop) { run_case(communicator_cases().back(), joined_world()); }

}  // namespace
}  // namespace heteroperf
