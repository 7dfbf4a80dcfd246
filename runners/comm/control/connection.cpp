#include "runners/comm/control/connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

// A frame is a header of 13 bytes and a payload:
//
//     | length: 4 | kind: 1 | id: 8 | payload: length bytes |
//
// Sending never waits: bytes that the socket does not take stay in `unsent_` until the control
// thread finds the socket writable again. Receiving takes the bytes that are there and cuts them
// into frames; a frame that is longer than its sender may send breaks the connection before any of
// its payload is held.

namespace heteroperf {
namespace {

constexpr std::size_t rank_bytes = 4;
/// A failure begins with its kind and a flag for the rank's own word.
constexpr std::size_t failure_header_bytes = 2;
/// The reader drops bytes that it has passed on once there are so many of them.
constexpr std::size_t most_passed_bytes = std::size_t{1} << 16;

/// Appends the `width` low bytes of a number, little endian.
void put(std::string& bytes, std::uint64_t value, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

/// Reads a number that put() wrote.
std::uint64_t take(std::string_view bytes, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

/// A rank as it stands in the 8 bytes of a frame's id.
std::uint64_t id_of(RankId rank) { return rank.index(); }

}  // namespace

std::string encode(const Frame& frame) {
  std::string bytes;
  bytes.reserve(frame_header_bytes + frame.payload.size());
  put(bytes, frame.payload.size(), 4);
  put(bytes, static_cast<std::uint64_t>(frame.kind), 1);
  put(bytes, frame.id, 8);
  return bytes + frame.payload;
}

Frame heartbeat_frame(const std::optional<OverdueWait>& wait) {
  if (!wait) return {};
  std::string payload;
  for (const RankId rank : wait->needed) {
    put(payload, id_of(rank), rank_bytes);
  }
  return {Frame::Kind::heartbeat, wait->id, std::move(payload)};
}

std::optional<OverdueWait> decode_heartbeat(const Frame& frame) {
  if (frame.payload.empty()) return std::nullopt;
  OverdueWait wait{frame.id, {}};
  std::string_view rest = frame.payload;
  for (; rest.size() >= rank_bytes; rest.remove_prefix(rank_bytes)) {
    wait.needed.push_back(RankId(take(rest, rank_bytes)));
  }
  return wait;
}

Frame failure_frame(const RankFailure& failure) {
  std::string payload;
  put(payload, static_cast<std::uint64_t>(failure.kind), 1);
  put(payload, failure.own_word ? 1 : 0, 1);
  return {Frame::Kind::failure, id_of(failure.rank), payload + failure.reason};
}

RankFailure decode_failure(const Frame& frame) {
  RankFailure failure{RankId(frame.id), ErrorKind::run_failed, ""};
  if (frame.payload.size() < failure_header_bytes) return failure;
  const auto kind = static_cast<unsigned char>(frame.payload[0]);
  if (kind <= static_cast<unsigned char>(ErrorKind::interrupted)) {
    failure.kind = static_cast<ErrorKind>(kind);
  }
  failure.own_word = frame.payload[1] != 0;
  failure.reason = frame.payload.substr(failure_header_bytes);
  return failure;
}

std::size_t FrameReader::room() const {
  const std::size_t held = buffer_.size() - begin_, most = max_payload_ + frame_header_bytes;
  return held < most ? most - held : 0;
}

std::optional<Frame> FrameReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (broken_ || rest.size() < frame_header_bytes) return std::nullopt;
  const std::size_t payload = take(rest, 4);
  const auto kind = static_cast<std::uint8_t>(rest[4]);
  broken_ = payload > max_payload_ || kind > Frame::last_kind;
  if (broken_ || rest.size() < frame_header_bytes + payload) return std::nullopt;
  Frame frame{static_cast<Frame::Kind>(kind), take(rest.substr(5), 8),
              std::string(rest.substr(frame_header_bytes, payload))};
  begin_ += frame_header_bytes + payload;
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
  } else if (begin_ > most_passed_bytes) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  return frame;
}

bool Connection::send(const Frame& frame) {
  std::lock_guard lock(mutex_);
  unsent_ += encode(frame);
  return push_locked();
}

bool Connection::flush() {
  std::lock_guard lock(mutex_);
  return push_locked();
}

bool Connection::has_unsent() const {
  std::lock_guard lock(mutex_);
  return !unsent_.empty();
}

/// Sends unsent bytes as long as the socket takes them. Bytes to a peer that is gone are dropped.
bool Connection::push_locked() {
  std::size_t sent = 0;
  while (!dead_ && sent < unsent_.size()) {
    const auto n = ::send(socket_.fd(), unsent_.data() + sent, unsent_.size() - sent,
                          MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      dead_ = true;
    }
  }
  if (dead_) sent = unsent_.size();
  unsent_.erase(0, sent);
  return !unsent_.empty();
}

Connection::Health Connection::receive(std::vector<Frame>& frames) {
  std::array<char, 65536> bytes;
  Health health = Health::open;
  std::size_t left = std::min(reader_.room(), round_limit_bytes);
  while (left > 0) {
    const std::size_t asked = std::min(left, bytes.size());
    const auto n = recv(socket_.fd(), bytes.data(), asked, MSG_DONTWAIT);
    if (n > 0) {
      const std::size_t got = n;
      reader_.append({bytes.data(), got});
      left -= got;
      if (got == asked) continue;
      break;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) health = Health::ended;
    break;
  }
  while (auto frame = reader_.next()) {
    frames.push_back(std::move(*frame));
    if (!trusted_) break;
  }
  return reader_.broken() ? Health::ended : health;
}

void Connection::trust() {
  trusted_ = true;
  reader_.set_max_payload(friend_limit_bytes);
}

}  // namespace heteroperf
