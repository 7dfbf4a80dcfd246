#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runners/comm/control/socket.hpp"
#include "runners/comm/control/standstill.hpp"
#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// One message of a control connection. On the wire it is the payload's length (4 bytes), the kind
/// (1) and the id (8), all little endian, and then the payload.
struct Frame {
  enum class Kind : std::uint8_t {
    hello,      ///< to rank 0: id = rank, a nonce; the next three: see control_proof.hpp
    challenge,  ///< rank 0's nonce
    answer,     ///< the rank's proof that it knows the token
    welcome,    ///< rank 0's proof: both sides know each other
    heartbeat,  ///< sign of life; a rank whose wait is overdue adds the ranks that it needs
    post,       ///< message to the handler
    call,       ///< same, id names the reply
    reply,      ///< id of the call
    dropped,    ///< no reply will come, id of the call
    stop,       ///< wish to stop, payload = reason
    failure,    ///< a RankFailure
    finished,   ///< id = rank whose work is done
    goodbye,    ///< the connection will close in order
  };
  static constexpr std::uint8_t last_kind = static_cast<std::uint8_t>(Kind::goodbye);

  Kind kind = Kind::heartbeat;
  std::uint64_t id = 0;
  std::string payload;
};

constexpr std::size_t frame_header_bytes = 13;

std::string encode(const Frame& frame);
Frame heartbeat_frame(const std::optional<OverdueWait>& wait);
std::optional<OverdueWait> decode_heartbeat(const Frame& frame);
Frame failure_frame(const RankFailure& failure);
/// A payload that is too short gives a failure without a text.
RankFailure decode_failure(const Frame& frame);

/// Cuts a byte stream into frames.
class FrameReader {
 public:
  explicit FrameReader(std::size_t max_payload_bytes) : max_payload_(max_payload_bytes) {}

  void set_max_payload(std::size_t bytes) { max_payload_ = bytes; }
  /// The number of bytes that the longest allowed frame may still need. With 0, next() returns a
  /// frame or finds the stream broken.
  std::size_t room() const;
  void append(std::string_view bytes) { buffer_.append(bytes); }
  /// The next whole frame. Sets broken() when the stream does not consist of frames.
  std::optional<Frame> next();
  bool broken() const { return broken_; }

 private:
  std::string buffer_;
  std::size_t begin_ = 0;
  std::size_t max_payload_;
  bool broken_ = false;
};

/// Carries frames over one non-blocking socket. Any thread sends; one thread receives.
///
/// A peer is a stranger until it has proved that it belongs to the launch. A stranger can make this
/// process hold the bytes of one short frame and nothing more.
class Connection {
 public:
  enum class Health { open, ended };

  /// A stranger's frame has a nonce or a proof as its payload.
  static constexpr std::size_t stranger_limit_bytes = 64;
  static constexpr std::size_t friend_limit_bytes = std::size_t{1} << 30;
  /// One receive() takes at most this much off the socket, so that no peer keeps the reader from
  /// others.
  static constexpr std::size_t round_limit_bytes = std::size_t{1} << 20;

  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}

  /// Sends as much as the socket takes now and keeps the rest for flush(). True when something is
  /// left.
  bool send(const Frame& frame);
  bool flush();
  bool has_unsent() const;

  /// Appends the whole frames that have arrived. From a stranger it takes one frame at most; the
  /// bytes behind it wait until trust() was called.
  Health receive(std::vector<Frame>& frames);
  /// Called when the peer has proved that it belongs to the launch.
  void trust();
  const Descriptor& socket() const { return socket_; }

 private:
  bool push_locked();

  Descriptor socket_;
  FrameReader reader_{stranger_limit_bytes};
  bool trusted_ = false;
  mutable std::mutex mutex_;
  std::string unsent_;
  bool dead_ = false;  ///< the peer's end is gone; receive() reports it
};

}  // namespace heteroperf
