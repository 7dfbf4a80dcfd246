#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "runners/comm/control/frame.hpp"
#include "runners/comm/control/socket.hpp"

namespace heteroperf {

/// Frames over one non-blocking socket. Any thread sends; one thread receives.
class Connection {
 public:
  enum class Health { open, ended };

  /// The payload of a stranger's frame: a nonce or a proof.
  static constexpr std::size_t stranger_limit_bytes = 64;
  static constexpr std::size_t friend_limit_bytes = std::size_t{1} << 30;
  /// One receive() takes so much off a friend's socket, so that no peer keeps the reader from
  /// others.
  static constexpr std::size_t round_limit_bytes = std::size_t{1} << 20;

  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}

  /// Sends what the socket takes now and keeps the rest for flush(). True when something is left.
  bool send(const Frame& frame);
  bool flush();
  bool has_unsent() const;

  /// Appends the whole frames that have arrived. Of a stranger it is one frame at most, and no more
  /// bytes are held than the longest may have: what follows waits until trust() was called.
  Health receive(std::vector<Frame>& frames);
  /// The peer has proved that it belongs to the launch.
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
