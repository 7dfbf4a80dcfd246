#include "runners/comm/control/connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace heteroperf {

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
      const auto got = static_cast<std::size_t>(n);
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
