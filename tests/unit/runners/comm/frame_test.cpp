// These tests read what travels on a control connection: frames, and the proofs of both ends.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <string_view>
#include <vector>

#include "runners/comm/control/connection.hpp"
#include "runners/comm/control/control_proof.hpp"

namespace heteroperf {
namespace {

/// Two connected sockets.
std::array<Descriptor, 2> socket_pair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

int bytes_waiting(const Descriptor& socket) {
  int bytes = 0;
  EXPECT_EQ(ioctl(socket.fd(), FIONREAD, &bytes), 0);
  return bytes;
}

/// A frame at a time, and never more of what follows than the longest frame of a stranger has.
TEST(Connection, TakesLittleFromAStranger) {
  auto [sender, receiver] = socket_pair();
  std::string stream;
  while (stream.size() < (std::size_t{1} << 17)) stream += encode({Frame::Kind::hello, 1, "nonce"});
  const ssize_t sent = ::send(sender.fd(), stream.data(), stream.size(), MSG_NOSIGNAL);
  ASSERT_GT(sent, ssize_t{1} << 16);
  Connection stranger(std::move(receiver));
  constexpr std::size_t most = Connection::stranger_limit_bytes + frame_header_bytes;
  std::size_t given = 0;
  for (int round = 1; round <= 20; ++round) {
    std::vector<Frame> frames;
    EXPECT_EQ(stranger.receive(frames), Connection::Health::open);
    ASSERT_EQ(frames.size(), 1u);
    given += encode(frames.front()).size();
    const auto taken = static_cast<std::size_t>(sent - bytes_waiting(stranger.socket()));
    EXPECT_LE(taken, given + most);
  }
  // Once it is known, all that it said is heard.
  stranger.trust();
  std::vector<Frame> rest;
  EXPECT_EQ(stranger.receive(rest), Connection::Health::open);
  EXPECT_GT(rest.size(), 1000u);
}

TEST(Connection, AllowsGreatFramesOnlyOfAFriend) {
  for (const bool trusted : {false, true}) {
    auto [sender, receiver] = socket_pair();
    const std::string great = encode({Frame::Kind::post, 1, std::string(100'000, 'x')});
    ASSERT_EQ(::send(sender.fd(), great.data(), great.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(great.size()));
    Connection peer(std::move(receiver));
    if (trusted) peer.trust();
    std::vector<Frame> frames;
    EXPECT_EQ(peer.receive(frames), trusted ? Connection::Health::open : Connection::Health::ended);
    EXPECT_EQ(frames.size(), trusted ? 1u : 0u);
  }
}

TEST(ControlProof, IsHmacSha256OfBothNoncesTheRankAndTheEnd) {
  const ControlHandshake handshake{7, std::string(nonce_bytes, '\x01'),
                                   std::string(nonce_bytes, '\x02')};
  std::string digits;
  for (const char byte : control_proof(ControlEnd::spoke, handshake, "token")) {
    digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  // As Python's hmac.new(b"token", b"control: spoke" + …, "sha256") gives it.
  EXPECT_EQ(digits, "2fdbe1a03695276555030720b45d34ac063c176302dd2a7bff63c1f0da393b42");
  ControlHandshake other = handshake;
  other.hub_nonce.back() = '\x03';
  EXPECT_FALSE(is_control_proof(control_proof(ControlEnd::spoke, handshake, "token"),
                                ControlEnd::spoke, other, "token"));
  EXPECT_EQ(fresh_token().size(), 64u);
  EXPECT_NE(fresh_token(), fresh_token());
  EXPECT_NE(fresh_nonce(), fresh_nonce());
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
