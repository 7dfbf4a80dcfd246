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

  /// A stranger may send a hello and nothing more.
  static constexpr std::size_t stranger_limit_bytes = 64;
  static constexpr std::size_t friend_limit_bytes = std::size_t{1} << 30;

  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}

  /// Sends what the socket takes now and keeps the rest for flush(). True when something is left.
  bool send(const Frame& frame);
  bool flush();
  bool has_unsent() const;

  /// Appends every whole frame that has arrived.
  Health receive(std::vector<Frame>& frames);
  void trust() { reader_.set_max_payload(friend_limit_bytes); }
  const Descriptor& socket() const { return socket_; }

 private:
  bool push_locked();

  Descriptor socket_;
  FrameReader reader_{stranger_limit_bytes};
  mutable std::mutex mutex_;
  std::string unsent_;
  bool dead_ = false;  ///< the peer's end is gone; receive() reports it
};

}  // namespace heteroperf
