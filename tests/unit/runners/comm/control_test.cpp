// The TCP control channel: all ranks of a star within this process.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "runners/comm/control/connection.hpp"
#include "runners/comm/control/control_proof.hpp"
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

const std::string known_token(64, 'a'), other_token(64, 'b');

std::unique_ptr<Connection> connection_to(const ControlAddress& address) {
  std::string reason;
  return std::make_unique<Connection>(connect_to(address.hosts.front(), address.port, 5, reason));
}

/// Empty where the other end closes the connection instead.
std::optional<Frame> next_frame(Connection& connection) {
  std::vector<Frame> frames;
  const bool came = comes_true(
      [&] { return connection.receive(frames) == Connection::Health::ended || !frames.empty(); });
  if (!came || frames.empty()) return std::nullopt;
  return frames.front();
}

/// True where the other end closes the connection without another word.
bool is_closed(Connection& connection) {
  std::vector<Frame> frames;
  const bool ended =
      comes_true([&] { return connection.receive(frames) == Connection::Health::ended; });
  return ended && frames.empty();
}

/// Says hello as that rank, and what rank 0 answers.
ControlHandshake challenge_for(Connection& stranger, std::uint64_t rank,
                               const std::string& nonce = fresh_nonce()) {
  stranger.send({Frame::Kind::hello, rank, nonce});
  const auto challenge = next_frame(stranger);
  EXPECT_TRUE(challenge && challenge->kind == Frame::Kind::challenge);
  return {rank, nonce, challenge ? challenge->payload : std::string(nonce_bytes, '-')};
}

/// A rank that joins and then says nothing, as a stopped process.
std::unique_ptr<Connection> join_silently(const std::string& text, std::uint64_t rank) {
  const ControlAddress address = ControlAddress::parse(text);
  auto connection = connection_to(address);
  const ControlHandshake handshake = challenge_for(*connection, rank);
  connection->send(
      {Frame::Kind::answer, 0, control_proof(ControlEnd::spoke, handshake, address.token)});
  const auto welcome = next_frame(*connection);
  EXPECT_TRUE(welcome &&
              is_control_proof(welcome->payload, ControlEnd::hub, handshake, address.token));
  return connection;
}

/// As rank 0 takes a rank in, with a proof by `token`.
void welcome_with(const std::string& token, Connection& guest) {
  const auto hello = next_frame(guest);
  if (!hello) return;
  const ControlHandshake handshake{hello->id, hello->payload, fresh_nonce()};
  guest.send({Frame::Kind::challenge, 0, handshake.hub_nonce});
  next_frame(guest);
  guest.send({Frame::Kind::welcome, 0, control_proof(ControlEnd::hub, handshake, token)});
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
  const ControlAddress address{known_token, listener.port, {"127.0.0.1"}};
  auto joining = std::async(
      std::launch::async, [&] { return open_control_spoke(RankId(1), 2, quick, address.text()); });
  ASSERT_TRUE(readable_within(listener.socket, 10));
  Connection silent(accept_connection(listener.socket));
  welcome_with(known_token, silent);
  const auto spoke = joining.get();
  EXPECT_TRUE(
      comes_true([&] { return failure_says(spoke->failure(), RankId(0), "no sign of life"); }));
  EXPECT_EQ(spoke->failure()->kind, ErrorKind::timeout);
}

TEST(TcpControl, StrangersAreSentAway) {
  ControlHub hub = open_control_hub(2, quick, Reach::this_host);
  const ControlAddress address = ControlAddress::parse(hub.address);
  const std::string nonce = fresh_nonce();
  const Frame first_words[] = {{Frame::Kind::hello, 0, nonce},
                               {Frame::Kind::hello, 2, nonce},
                               {Frame::Kind::hello, std::uint64_t{1} << 40, nonce},
                               {Frame::Kind::hello, 1, nonce.substr(1)},
                               {Frame::Kind::hello, 1, ""},
                               {Frame::Kind::hello, 1, std::string(1000, 'x')},
                               {Frame::Kind::answer, 1, nonce},
                               {Frame::Kind::post, 1, "let me in"}};
  for (const Frame& frame : first_words) {
    const auto stranger = connection_to(address);
    stranger->send(frame);
    EXPECT_TRUE(is_closed(*stranger)) << static_cast<int>(frame.kind) << ' ' << frame.id;
  }
  const ControlHandshake any{1, nonce, nonce};
  const std::vector<std::function<Frame(const ControlHandshake&)>> answers = {
      [&](const ControlHandshake& asked) -> Frame {  // does not know the token
        return {Frame::Kind::answer, 0, control_proof(ControlEnd::spoke, asked, other_token)};
      },
      [&](const ControlHandshake& asked) -> Frame {  // rank 0's proof sent back to it
        return {Frame::Kind::answer, 0, control_proof(ControlEnd::hub, asked, address.token)};
      },
      [&](const ControlHandshake& asked) -> Frame {  // its nonce sent back to it
        return {Frame::Kind::answer, 0, asked.hub_nonce};
      },
      [&](const ControlHandshake&) -> Frame {  // the proof of another connection
        return {Frame::Kind::answer, 0, control_proof(ControlEnd::spoke, any, address.token)};
      },
      [&](ControlHandshake asked) -> Frame {  // the proof of another rank
        asked.rank = 0;
        return {Frame::Kind::answer, 0, control_proof(ControlEnd::spoke, asked, address.token)};
      },
      [&](const ControlHandshake& asked) -> Frame {  // a proof and more
        return {Frame::Kind::answer, 0,
                control_proof(ControlEnd::spoke, asked, address.token) + "x"};
      },
      [&](const ControlHandshake&) -> Frame {
        return {Frame::Kind::answer, 0, ""};
      },
      [&](const ControlHandshake& asked) -> Frame {
        return {Frame::Kind::post, 0, control_proof(ControlEnd::spoke, asked, address.token)};
      }};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto stranger = connection_to(address);
    stranger->send(answers[i](challenge_for(*stranger, 1)));
    EXPECT_TRUE(is_closed(*stranger)) << "answer " << i;
  }
  auto spoke = open_control_spoke(RankId(1), 2, quick, hub.address);
  await_control_spokes(*hub.control);
  EXPECT_FALSE(hub.control->failure());
}

/// What a genuine rank said once does not let another in, though it says the very same hello.
TEST(TcpControl, AReplayedAnswerDoesNotCount) {
  ControlHub hub = open_control_hub(3, quick, Reach::this_host);
  const ControlAddress address = ControlAddress::parse(hub.address);
  const auto genuine = connection_to(address), replaying = connection_to(address);
  const ControlHandshake heard = challenge_for(*genuine, 1);
  const Frame answer{Frame::Kind::answer, 0,
                     control_proof(ControlEnd::spoke, heard, address.token)};
  const ControlHandshake asked = challenge_for(*replaying, 1, heard.rank_nonce);
  EXPECT_NE(asked.hub_nonce, heard.hub_nonce);
  replaying->send(answer);
  EXPECT_TRUE(is_closed(*replaying));
  genuine->send(answer);
  const auto welcome = next_frame(*genuine);
  ASSERT_TRUE(welcome);
  EXPECT_TRUE(is_control_proof(welcome->payload, ControlEnd::hub, heard, address.token));
  // Its place is taken now.
  const auto late = connection_to(address);
  const ControlHandshake again = challenge_for(*late, 1);
  late->send({Frame::Kind::answer, 0, control_proof(ControlEnd::spoke, again, address.token)});
  EXPECT_TRUE(is_closed(*late));
}

/// Who streams, or stops in the middle of a frame, keeps nobody else waiting, and is sent away.
TEST(TcpControl, FloodsAndSilentStrangersKeepNobodyOut) {
  ControlHub hub = open_control_hub(2, quick, Reach::this_host);
  const ControlAddress address = ControlAddress::parse(hub.address);
  const auto flood = connection_to(address), polite_flood = connection_to(address),
             half_a_hello = connection_to(address), half_an_answer = connection_to(address);
  flood->send({Frame::Kind::post, 1, std::string(8 << 20, 'x')});
  challenge_for(*polite_flood, 1);
  polite_flood->send({Frame::Kind::post, 1, std::string(8 << 20, 'x')});
  const std::string hello = encode({Frame::Kind::hello, 1, fresh_nonce()});
  const auto half = static_cast<ssize_t>(hello.size() / 2);
  EXPECT_EQ(::send(half_a_hello->socket().fd(), hello.data(), hello.size() / 2, 0), half);
  challenge_for(*half_an_answer, 1);
  EXPECT_EQ(::send(half_an_answer->socket().fd(), hello.data(), 5, 0), 5);

  auto spoke = open_control_spoke(RankId(1), 2, quick, hub.address);
  await_control_spokes(*hub.control);
  for (Connection* stranger :
       {flood.get(), polite_flood.get(), half_a_hello.get(), half_an_answer.get()}) {
    EXPECT_TRUE(is_closed(*stranger));
  }
  EXPECT_FALSE(hub.control->failure());
}

/// Waits at a port and does something of its own to everybody who comes.
class Impostor {
 public:
  explicit Impostor(std::function<void(Connection&)> trick)
      : thread_([this, receive_guest = std::move(trick)] {
          while (!done_) {
            if (!readable_within(listener_.socket, 0.1)) continue;
            guests_.push_back(std::make_unique<Connection>(accept_connection(listener_.socket)));
            receive_guest(*guests_.back());
          }
        }) {}
  ~Impostor() { stop(); }

  ControlAddress address() const { return {known_token, listener_.port, {"127.0.0.1"}}; }
  /// The number of those that have come.
  std::size_t stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
    return guests_.size();
  }

 private:
  const Listener listener_ = listen_on_free_port(Reach::this_host);
  std::atomic<bool> done_{false};
  std::vector<std::unique_ptr<Connection>> guests_;
  std::thread thread_;
};

/// The error of a rank that tried to join in vain.
std::string words_of_joining(const ControlAddress& address) {
  try {
    open_control_spoke(RankId(1), 2, quick, address.text());
  } catch (const SystemError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    return error.what();
  }
  ADD_FAILURE() << "joined somebody";
  return "";
}

TEST(TcpControl, AWrongRankZeroIsNotJoined) {
  const std::vector<std::function<void(Connection&)>> tricks = {
      [](Connection& guest) {  // does not ask
        guest.send({Frame::Kind::welcome, 0, std::string(nonce_bytes, 'w')});
      },
      [](Connection& guest) { welcome_with(other_token, guest); },
      [](Connection& guest) {  // sends back what it gets
        for (const Frame::Kind kind : {Frame::Kind::challenge, Frame::Kind::welcome}) {
          if (const auto heard = next_frame(guest)) guest.send({kind, 0, heard->payload});
        }
      },
      [](Connection& guest) {  // wants a proof over a nonce that does not fit
        next_frame(guest);
        guest.send({Frame::Kind::challenge, 0, "short"});
      },
      [](Connection& guest) {  // a frame that only a proven rank 0 may send
        guest.send({Frame::Kind::stop, 0, std::string(1 << 20, 's')});
      },
      [](Connection& guest) {  // half a frame, then silence
        EXPECT_EQ(::send(guest.socket().fd(), "\x20\0\0\0\x01", 5, 0), 5);
      }};
  std::vector<std::unique_ptr<Impostor>> impostors;
  std::vector<std::future<std::string>> attempts;
  for (const auto& trick : tricks) {
    impostors.push_back(std::make_unique<Impostor>(trick));
    attempts.push_back(
        std::async(std::launch::async, words_of_joining, impostors.back()->address()));
  }
  for (std::size_t i = 0; i < tricks.size(); ++i) {
    const std::string words = attempts[i].get();
    EXPECT_NE(words.find("127.0.0.1"), std::string::npos) << "trick " << i << ": " << words;
    EXPECT_NE(words.find("rank 0 does not answer there"), std::string::npos) << words;
    // 20 ms, 40 ms, … 1 s between attempts of three seconds in all.
    const std::size_t guests = impostors[i]->stop();
    EXPECT_TRUE(guests > 0 && guests <= 9) << "trick " << i << ": " << guests;
  }
}

TEST(TcpControl, AnAddressThatRefusesIsNamed) {
  std::uint16_t port = 0;
  {
    const Listener gone = listen_on_free_port(Reach::this_host);
    port = gone.port;
  }
  const std::string words = words_of_joining({known_token, port, {"127.0.0.1", "127.0.0.2"}});
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
  const std::string words = words_of_joining({known_token, deaf.listener.port, {"127.0.0.1"}});
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

/// The reply falls before the exception is known, as late as it may come.
TEST(TcpControl, WhoWaitsForAnAnswerLearnsWhyNoneComes) {
  Star star(2);
  ServiceScope service(*star.ranks[0], [](RankId, const std::string&, ControlChannel::Reply reply) {
    reply = {};
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    throw SystemError("the disk is full");
  });
  for (const auto& rank : star.ranks) {
    try {
      rank->call("write");
      ADD_FAILURE() << "nobody failed";
    } catch (const PeerError& error) {
      EXPECT_TRUE(failure_says(error.failure(), RankId(0), "the disk is full")) << error.what();
    }
  }
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

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need their memory

/// Runs `body` in a child process; whether it returned true.
bool holds_in_child(auto&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// From now on this process gets 64 MiB more at most.
void limit_memory() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);
  const rlimit limit{most, most};
  ::setrlimit(RLIMIT_AS, &limit);
}

/// Sends of a frame of 512 MiB as much as the other end takes until it has failed.
void send_great_frame(Connection& to, const TcpControl& other_end) {
  std::string header = encode({Frame::Kind::post, 1, ""});
  header[3] = '\x20';
  ::send(to.socket().fd(), header.data(), header.size(), MSG_NOSIGNAL);
  const std::string piece(std::size_t{1} << 16, 'x');
  while (!other_end.failure()) {
    const auto sent = ::send(to.socket().fd(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (sent < 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool says_no_memory(const std::optional<RankFailure>& failure, RankId rank) {
  return failure_says(failure, rank, "not enough memory") && failure->own_word &&
         failure->kind == ErrorKind::run_failed;
}

constexpr CommConfig patient{.timeout_s = 60.0, .heartbeat_s = 0.05};

TEST(TcpControl, ARankZeroWithoutMemorySaysSo) {
  EXPECT_TRUE(holds_in_child([] {
    ControlHub hub = open_control_hub(3, patient, Reach::this_host);
    const auto flooding = join_silently(hub.address, 1);
    const auto spoke = open_control_spoke(RankId(2), 3, patient, hub.address);
    limit_memory();
    send_great_frame(*flooding, *hub.control);
    return says_no_memory(hub.control->failure(), RankId(0)) &&
           comes_true([&] { return says_no_memory(spoke->failure(), RankId(0)); });
  }));
}

TEST(TcpControl, ARankWithoutMemorySaysSo) {
  EXPECT_TRUE(holds_in_child([] {
    Connection* rank_zero = nullptr;
    std::atomic<bool> joined{false};
    Impostor impostor([&](Connection& guest) {
      welcome_with(known_token, guest);
      rank_zero = &guest;
      joined = true;
      joined.notify_all();
    });
    const auto spoke = open_control_spoke(RankId(1), 2, patient, impostor.address().text());
    joined.wait(false);
    limit_memory();
    send_great_frame(*rank_zero, *spoke);
    return says_no_memory(spoke->failure(), RankId(1));
  }));
}

#endif

/// A friend who sends and sends does not keep the reader from the others.
TEST(Connection, ReadsAFriendRoundByRound) {
  constexpr std::size_t count = 4096, payload = 4096;
  const Listener listener = listen_on_free_port(Reach::this_host);
  std::string reason, stream;
  const Descriptor sender = connect_to("127.0.0.1", listener.port, 5, reason);
  ASSERT_TRUE(readable_within(listener.socket, 10));
  Connection peer(accept_connection(listener.socket));
  peer.trust();
  for (std::size_t i = 0; i < count; ++i) {
    stream += encode({Frame::Kind::post, i, std::string(payload, 'x')});
  }
  std::size_t heard = 0;
  std::string_view unsent = stream;
  EXPECT_TRUE(comes_true([&] {
    ssize_t sent = 0;
    do {
      unsent.remove_prefix(static_cast<std::size_t>(sent));
      sent = ::send(sender.fd(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent > 0);
    std::vector<Frame> frames;
    EXPECT_EQ(peer.receive(frames), Connection::Health::open);
    EXPECT_LE(frames.size(), Connection::round_limit_bytes / payload);
    heard += frames.size();
    return heard == count;
  }));
}

}  // namespace
}  // namespace heteroperf
