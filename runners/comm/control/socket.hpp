#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace heteroperf {

/// Owns a file descriptor and closes it at its end.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// The hosts from which a listening socket can be reached.
enum class Reach { this_host, other_hosts };

/// A listening socket and its port.
struct Listener {
  Descriptor socket;
  std::uint16_t port = 0;
};

/// Throws SystemError{environment}. `this_host` listens on the loopback interface only.
Listener listen_on_free_port(Reach reach);
/// Takes a connection that waits at the listener. Empty when there is none.
Descriptor accept_connection(const Descriptor& listener);
/// The numeric addresses at which this host may be reached.
std::vector<std::string> own_addresses(Reach reach);
/// Connects within `timeout_s`. On failure the descriptor is empty and `reason` is set.
Descriptor connect_to(const std::string& address, std::uint16_t port, double timeout_s,
                      std::string& reason);
/// True when `fd` has something to read (or has ended) within `timeout_s`.
bool readable_within(const Descriptor& socket, double timeout_s);

/// Wakes a thread that polls fd(). Any thread may call signal().
class WakeUp {
 public:
  WakeUp();
  int fd() const { return event_.fd(); }
  void signal();
  void clear();

 private:
  Descriptor event_;
};

}  // namespace heteroperf
