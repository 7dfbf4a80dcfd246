// The TCP control channel: all ranks of a star within this process.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "runners/comm/control/connection.hpp"
#include "runners/comm/control/control_address.hpp"
#include "runners/comm/control/tcp_control.hpp"

namespace heteroperf {
namespace {

constexpr CommConfig quick{.timeout_s = 1.0, .heartbeat_s = 0.05};

/// Rank 0 and its peers, all joined.
struct Star {
  explicit Star(int size, const CommConfig& config = quick, Reach reach = Reach::this_host)
      : hub(open_control_hub(size, config, reach)) {
    ranks.push_back(hub.control);
    for (int r = 1; r < size; ++r) {
      ranks.push_back(open_control_spoke(RankId(r), size, config, hub.address));
    }
    await_control_spokes(*hub.control);
  }

  /// As at the end of a run. Rank 0 waits for the others, so each is on its own thread.
  void leave() {
    std::vector<std::future<void>> ends;
    for (auto& rank : ranks) {
      ends.push_back(std::async(std::launch::async, [&rank] { rank->close(); }));
    }
    for (auto& end : ends) end.get();
  }

  ControlHub hub;
  std::vector<std::shared_ptr<TcpControl>> ranks;
};

template <class Condition>
bool comes_true(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

bool failure_says(const std::optional<RankFailure>& failure, RankId rank, const std::string& part) {
  return failure && failure->rank == rank && failure->reason.find(part) != std::string::npos;
}

TEST(TcpControl, AnswersAndLeavesInOrder) {
  for (Reach reach : {Reach::this_host, Reach::other_hosts}) {
    Star star(4, quick, reach);
    ServiceScope service(*star.ranks[0],
                         [](RankId from, std::string text, ControlChannel::Reply reply) {
                           reply(text + " " + std::to_string(from.value()));
                         });
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(star.ranks[static_cast<std::size_t>(r)]->call("rank"), "rank " + std::to_string(r));
    }
    star.leave();
    for (const auto& rank : star.ranks) EXPECT_FALSE(rank->failure());
  }
}

TEST(TcpControl, LivesOnHeartbeatsAlone) {
  Star star(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  for (const auto& rank : star.ranks) EXPECT_FALSE(rank->failure());
  star.leave();
}

TEST(TcpControl, ALostRankIsKnownToAll) {
  Star star(4);
  star.ranks[2].reset();  // without goodbye, as a killed process
  for (int r : {0, 1, 3}) {
    const auto& rank = star.ranks[static_cast<std::size_t>(r)];
    EXPECT_TRUE(
        comes_true([&] { return failure_says(rank->failure(), RankId(2), "connection closed"); }));
    EXPECT_EQ(rank->failure()->kind, ErrorKind::run_failed);
    EXPECT_TRUE(rank->failure_among({}));
  }
}

TEST(TcpControl, ALostRankZeroIsKnownToAll) {
  Star star(3);
  star.ranks[0].reset();
  star.hub.control.reset();
  for (int r : {1, 2}) {
    const auto& rank = star.ranks[static_cast<std::size_t>(r)];
    EXPECT_TRUE(
        comes_true([&] { return failure_says(rank->failure(), RankId(0), "connection closed"); }));
    EXPECT_THROW(rank->call("anybody?"), PeerError);
    EXPECT_THROW(rank->close(), PeerError);
  }
}

/// A rank that joins and then says nothing, as a stopped process.
std::unique_ptr<Connection> join_silently(const std::string& text, int rank) {
  const ControlAddress address = ControlAddress::parse(text);
  std::string reason;
  auto connection =
      std::make_unique<Connection>(connect_to(address.hosts.front(), address.port, 5, reason));
  connection->send(
      {Frame::Kind::hello, static_cast<std::uint64_t>(rank), encode_number(address.token)});
  return connection;
}

TEST(TcpControl, ASilentRankIsATimeout) {
  ControlHub hub = open_control_hub(3, quick, Reach::this_host);
  auto listening = open_control_spoke(RankId(1), 3, quick, hub.address);
  const auto silent = join_silently(hub.address, 2);
  await_control_spokes(*hub.control);
  for (const auto& rank : {hub.control, listening}) {
    EXPECT_TRUE(
        comes_true([&] { return failure_says(rank->failure(), RankId(2), "no sign of life"); }));
    EXPECT_EQ(rank->failure()->kind, ErrorKind::timeout);
  }
}

TEST(TcpControl, ASilentRankZeroIsATimeout) {
  // A listener that welcomes and then says nothing.
  const Listener listener = listen_on_free_port(Reach::this_host);
  const ControlAddress address{17, listener.port, {"127.0.0.1"}};
  auto joining = std::async(
      std::launch::async, [&] { return open_control_spoke(RankId(1), 2, quick, address.text()); });
  ASSERT_TRUE(readable_within(listener.socket, 10));
  Connection silent(accept_connection(listener.socket));
  silent.send({Frame::Kind::welcome, 0, encode_number(address.answer())});
  const auto spoke = joining.get();
  EXPECT_TRUE(
      comes_true([&] { return failure_says(spoke->failure(), RankId(0), "no sign of life"); }));
  EXPECT_EQ(spoke->failure()->kind, ErrorKind::timeout);
}

TEST(TcpControl, StrangersAreSentAway) {
  ControlHub hub = open_control_hub(2, quick, Reach::this_host);
  ControlAddress address = ControlAddress::parse(hub.address);
  const std::uint64_t token = address.token;
  const std::pair<std::uint64_t, std::uint64_t> hellos[] = {
      {1, token + 1}, {0, token}, {2, token}, {std::uint64_t{1} << 40, token}};
  for (const auto& [rank, secret] : hellos) {
    std::string reason;
    Connection stranger(connect_to(address.hosts.front(), address.port, 5, reason));
    stranger.send({Frame::Kind::hello, rank, encode_number(secret)});
    std::vector<Frame> frames;
    EXPECT_TRUE(comes_true([&] { return stranger.receive(frames) == Connection::Health::ended; }));
    EXPECT_TRUE(frames.empty());
  }
  // Too long for a hello, and no hello at all.
  for (const Frame& frame : {Frame{Frame::Kind::hello, 1, std::string(1000, 'x')},
                             Frame{Frame::Kind::post, 1, "let me in"}}) {
    std::string reason;
    Connection stranger(connect_to(address.hosts.front(), address.port, 5, reason));
    stranger.send(frame);
    std::vector<Frame> frames;
    EXPECT_TRUE(comes_true([&] { return stranger.receive(frames) == Connection::Health::ended; }));
  }
  auto spoke = open_control_spoke(RankId(1), 2, quick, hub.address);
  await_control_spokes(*hub.control);
  EXPECT_FALSE(hub.control->failure());
}

TEST(TcpControl, AWrongRankZeroIsNotJoined) {
  const Listener listener = listen_on_free_port(Reach::this_host);
  const ControlAddress address{17, listener.port, {"127.0.0.1"}};
  std::atomic<bool> done{false};
  std::vector<std::unique_ptr<Connection>> guests;
  std::thread impostor([&] {
    while (!done) {
      if (!readable_within(listener.socket, 0.1)) continue;
      guests.push_back(std::make_unique<Connection>(accept_connection(listener.socket)));
      guests.back()->send({Frame::Kind::welcome, 0, encode_number(99)});
    }
  });
  try {
    open_control_spoke(RankId(1), 2, quick, address.text());
    ADD_FAILURE() << "joined an impostor";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    EXPECT_NE(std::string(error.what()).find("127.0.0.1"), std::string::npos) << error.what();
  }
  done = true;
  impostor.join();
  // 20 ms, 40 ms, … 1 s between attempts of three seconds in all.
  EXPECT_LE(guests.size(), 9u);
}

std::string words_of_joining(const ControlAddress& address) {
  try {
    open_control_spoke(RankId(1), 2, quick, address.text());
  } catch (const SystemError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    return error.what();
  }
  ADD_FAILURE() << "joined nobody";
  return "";
}

TEST(TcpControl, AnAddressThatRefusesIsNamed) {
  std::uint16_t port = 0;
  {
    const Listener gone = listen_on_free_port(Reach::this_host);
    port = gone.port;
  }
  const std::string words = words_of_joining({17, port, {"127.0.0.1", "127.0.0.2"}});
  for (const char* host : {"127.0.0.1", "127.0.0.2"}) {
    const std::string part = fmt::format("{} port {}: Connection refused", host, port);
    EXPECT_NE(words.find(part), std::string::npos) << words;
  }
  EXPECT_NE(words.find("rank 1 cannot reach rank 0's control channel"), std::string::npos);
}

/// Listens, takes nobody, and has its queue full: the kernel drops who knocks.
struct DeafListener {
  DeafListener() : listener(listen_on_free_port(Reach::this_host)) {
    EXPECT_EQ(listen(listener.socket.fd(), 0), 0);
    std::string reason;
    for (int i = 0; i < 8; ++i) {
      waiting.push_back(connect_to("127.0.0.1", listener.port, 0.05, reason));
    }
    EXPECT_EQ(reason, "no answer within 0.05 s");
  }
  Listener listener;
  std::vector<Descriptor> waiting;
};

TEST(TcpControl, AnAddressThatDropsIsNamed) {
  const DeafListener deaf;
  const std::string words = words_of_joining({17, deaf.listener.port, {"127.0.0.1"}});
  const std::string part =
      fmt::format("127.0.0.1 port {}: no answer within 3 s", deaf.listener.port);
  EXPECT_NE(words.find(part), std::string::npos) << words;
}

/// The ranks live, their messages do not come through.
TEST(TcpControl, RanksThatWaitForEachOtherAreNamed) {
  Star star(4);
  const RankId one(1), two(2);
  star.ranks[1]->waits_for({&two, 1}, Bytes(0));
  star.ranks[2]->waits_for({&one, 1}, Bytes(0));
  star.ranks[3]->waits_for({&one, 1}, Bytes(0));
  for (const auto& rank : star.ranks) {
    EXPECT_TRUE(comes_true(
        [&] { return failure_says(rank->failure(), RankId(2), "ranks 1 and 2 have waited"); }));
    EXPECT_EQ(rank->failure()->kind, ErrorKind::timeout);
  }
}

TEST(TcpControl, ARankThatStillWorksIsAwaited) {
  Star star(3);
  const std::vector<RankId> all = {RankId(0), RankId(1), RankId(2)};
  star.ranks[0]->waits_for(all, Bytes(0));
  star.ranks[1]->waits_for(all, Bytes(0));
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  for (const auto& rank : star.ranks) EXPECT_FALSE(rank->failure());
  star.ranks[0]->waits_no_more();
  star.ranks[1]->waits_no_more();
  star.leave();
}

TEST(TcpControl, AnAbortReachesEverybodyWithItsWords) {
  Star star(4);
  star.ranks[3]->abort({RankId(3), ErrorKind::usage, "batch=0"});
  for (const auto& rank : star.ranks) {
    EXPECT_TRUE(comes_true([&] { return failure_says(rank->failure(), RankId(3), "batch=0"); }));
    EXPECT_EQ(rank->failure()->kind, ErrorKind::usage);
  }
  star.ranks[1]->abort({RankId(1), ErrorKind::run_failed, "an echo"});
  EXPECT_TRUE(failure_says(star.ranks[0]->failure(), RankId(3), "batch=0"));
}

/// Who is to tell what happened depends on it: a rank that is lost cannot.
TEST(TcpControl, WhatARankSaysOfItselfIsToldFromWhatIsFoundOut) {
  Star handler(2), lost(2);
  ServiceScope service(*handler.ranks[0],
                       [](RankId, const std::string&, const ControlChannel::Reply&) {
                         throw SystemError("the disk is full");
                       });
  EXPECT_THROW(handler.ranks[1]->call("write"), PeerError);
  for (const auto& rank : handler.ranks) {
    EXPECT_TRUE(
        comes_true([&] { return failure_says(rank->failure(), RankId(0), "the disk is full"); }));
    EXPECT_TRUE(rank->failure()->own_word);
  }
  lost.ranks[0].reset();
  lost.hub.control.reset();
  EXPECT_TRUE(comes_true([&] { return lost.ranks[1]->failure().has_value(); }));
  EXPECT_FALSE(lost.ranks[1]->failure()->own_word);
}

TEST(TcpControl, AWaitingCallEndsOnAbort) {
  Star star(3);  // nobody serves
  auto waiting = std::async(std::launch::async, [&] { return star.ranks[1]->call("hello?"); });
  star.ranks[2]->abort({RankId(2), ErrorKind::run_failed, "gone"});
  EXPECT_THROW(waiting.get(), PeerError);
}

TEST(TcpControl, AStopReachesEverybody) {
  Star star(3);
  star.ranks[2]->request_stop("interrupted");
  for (const auto& rank : star.ranks) {
    EXPECT_TRUE(comes_true([&] { return rank->stop_requested() == "interrupted"; }));
  }
  star.leave();
}

TEST(TcpControl, WhoHasFinishedIsNotAwaited) {
  Star star(3);
  star.ranks[1]->announce_finished();
  const RankId one(1);
  EXPECT_TRUE(comes_true([&] { return star.ranks[2]->failure_among({&one, 1}).has_value(); }));
  // Who finds that tells everybody.
  for (const auto& rank : star.ranks) {
    EXPECT_TRUE(comes_true([&] { return failure_says(rank->failure(), one, "finished without"); }));
  }
}

TEST(TcpControl, WhoHasFinishedWaitsForTheOthers) {
  Star star(3);
  star.ranks[1]->announce_finished();
  const RankId one(1), two(2);
  EXPECT_FALSE(star.ranks[2]->failure_among({&two, 1}));
  EXPECT_FALSE(star.ranks[1]->failure_among({&one, 1}));
  EXPECT_FALSE(star.ranks[2]->failure());
}

TEST(TcpControl, ARankThatNeverJoinsIsNamed) {
  // The least deadline for joining is long; a failure of another rank ends the wait at once.
  ControlHub hub = open_control_hub(3, quick, Reach::this_host);
  auto spoke = open_control_spoke(RankId(1), 3, quick, hub.address);
  spoke->abort({RankId(1), ErrorKind::run_failed, "no memory"});
  EXPECT_THROW(await_control_spokes(*hub.control), PeerError);
}

TEST(FrameReader, PutsPiecesTogether) {
  std::string stream;
  for (std::uint64_t i = 0; i < 50; ++i) {
    stream += encode({Frame::Kind::post, i, std::string(i * i, 'a')});
  }
  for (std::size_t piece : {1u, 2u, 13u, 14u, 1000u}) {
    FrameReader reader(1 << 20);
    std::uint64_t next = 0;
    for (std::size_t begin = 0; begin < stream.size(); begin += piece) {
      reader.append(std::string_view(stream).substr(begin, piece));
      while (auto frame = reader.next()) {
        EXPECT_EQ(frame->kind, Frame::Kind::post);
        EXPECT_EQ(frame->id, next);
        EXPECT_EQ(frame->payload.size(), next * next);
        ++next;
      }
    }
    EXPECT_EQ(next, 50u);
    EXPECT_FALSE(reader.broken());
  }
}

TEST(FrameReader, RefusesWhatIsNotOurs) {
  FrameReader too_long(10), unknown(10);
  too_long.append(encode({Frame::Kind::post, 0, std::string(11, 'x')}));
  EXPECT_FALSE(too_long.next());
  EXPECT_TRUE(too_long.broken());
  std::string text = encode({});
  text[4] = 99;
  unknown.append(text);
  EXPECT_FALSE(unknown.next());
  EXPECT_TRUE(unknown.broken());
}

TEST(FrameReader, FailuresSurviveTheWire) {
  for (const bool own_word : {false, true}) {
    const RankFailure sent{RankId(5), ErrorKind::timeout, "no sign of life for 30 s", own_word};
    const RankFailure got = decode_failure(failure_frame(sent));
    EXPECT_EQ(got.rank, sent.rank);
    EXPECT_EQ(got.kind, sent.kind);
    EXPECT_EQ(got.reason, sent.reason);
    EXPECT_EQ(got.own_word, own_word);
  }
  for (const char* payload : {"", "\x05"}) {
    const RankFailure got = decode_failure({Frame::Kind::failure, 2, payload});
    EXPECT_EQ(got.kind, ErrorKind::run_failed);
    EXPECT_FALSE(got.own_word);
  }
}

}  // namespace
}  // namespace heteroperf
