#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runners/comm/control/wait_ledger.hpp"
#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// One message of the control connection. On the wire: payload length (4 bytes), kind (1), id (8),
/// all little endian, then the payload.
struct Frame {
  enum class Kind : std::uint8_t {
    hello,      ///< to rank 0: id = rank, a nonce; the next three: see control_proof.hpp
    challenge,  ///< rank 0's nonce
    answer,     ///< the rank's proof that it knows the token
    welcome,    ///< rank 0's proof: both sides know each other
    heartbeat,  ///< sign of life; from a rank whose wait is overdue with what it needs
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
/// A failure of unknown text for a payload that is too short.
RankFailure decode_failure(const Frame& frame);

/// Cuts a byte stream into frames.
class FrameReader {
 public:
  explicit FrameReader(std::size_t max_payload_bytes) : max_payload_(max_payload_bytes) {}

  void set_max_payload(std::size_t bytes) { max_payload_ = bytes; }
  /// A frame of the greatest length may need so many more bytes; 0: next() has something to say.
  std::size_t room() const;
  void append(std::string_view bytes) { buffer_.append(bytes); }
  /// The next whole frame; sets broken() when the stream is not ours.
  std::optional<Frame> next();
  bool broken() const { return broken_; }

 private:
  std::string buffer_;
  std::size_t begin_ = 0;
  std::size_t max_payload_;
  bool broken_ = false;
};

}  // namespace heteroperf
