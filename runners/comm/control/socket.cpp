#include "runners/comm/control/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "metrics/base/error.hpp"

// TCP sockets of the control channel. All of them are non-blocking, so that the control thread
// never waits for one peer alone. Between hosts rank 0 listens on IPv6 and IPv4 where the system
// has IPv6, else on IPv4 alone.

namespace heteroperf {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw SystemError(what, std::strerror(errno), "Check the limits and network of this host",
                    ErrorKind::environment);
}

/// Frames are small and must not wait for more data.
void send_at_once(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// A socket bound to a free port. Empty when the system refuses.
Descriptor bound_socket(int family, Reach reach) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  int result = -1;
  if (family == AF_INET6) {
    // With this option off, the IPv6 socket takes IPv4 connections, too.
    const int off = 0;
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_any;
    result = bind(socket.fd(), reinterpret_cast<sockaddr*>(&any), sizeof any);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(reach == Reach::this_host ? INADDR_LOOPBACK : INADDR_ANY);
    result = bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  return result == 0 ? std::move(socket) : Descriptor();
}

std::uint16_t port_of(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    fail("cannot read the port of the control channel");
  }
  // The port lies at the same place in both families.
  return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

/// True for an address at which other hosts may reach this one.
bool is_reachable(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return false;
  if ((entry.ifa_flags & IFF_LOOPBACK) != 0) return false;
  if (entry.ifa_addr->sa_family == AF_INET) return true;
  if (entry.ifa_addr->sa_family != AF_INET6) return false;
  const auto* address = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
  return !IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr);
}

std::string numeric(const sockaddr* address) {
  char host[NI_MAXHOST] = "";
  const socklen_t length =
      address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host;
}

int milliseconds(double seconds) { return static_cast<int>(std::ceil(seconds * 1e3)); }

/// Waits for the outcome of a connection attempt. Returns 0 or its error.
int outcome_of_connect(int fd, double timeout_s) {
  pollfd entry{fd, POLLOUT, 0};
  if (poll(&entry, 1, milliseconds(timeout_s)) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Listener listen_on_free_port(Reach reach) {
  Listener listener;
  if (reach == Reach::other_hosts) listener.socket = bound_socket(AF_INET6, reach);
  if (!listener.socket) listener.socket = bound_socket(AF_INET, reach);
  if (!listener.socket || listen(listener.socket.fd(), SOMAXCONN) != 0) {
    fail("cannot open a port for the control channel");
  }
  listener.port = port_of(listener.socket);
  return listener;
}

Descriptor accept_connection(const Descriptor& listener) {
  Descriptor socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) send_at_once(socket.fd());
  return socket;
}

std::vector<std::string> own_addresses(Reach reach) {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (reach == Reach::other_hosts && getifaddrs(&list) == 0) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (is_reachable(*entry)) addresses.push_back(numeric(entry->ifa_addr));
    }
    freeifaddrs(list);
  }
  // The loopback address comes last: on another host it leads to a stranger, who cannot prove that
  // it knows the token.
  addresses.emplace_back("127.0.0.1");
  return addresses;
}

Descriptor connect_to(const std::string& address, std::uint16_t port, double timeout_s,
                      std::string& reason) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* target = nullptr;
  const int lookup = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &target);
  if (lookup != 0) {
    reason = gai_strerror(lookup);
    return {};
  }
  Descriptor socket(::socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = errno;
  if (socket) {
    send_at_once(socket.fd());
    error = connect(socket.fd(), target->ai_addr, target->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) error = outcome_of_connect(socket.fd(), timeout_s);
  }
  freeaddrinfo(target);
  if (error == 0) return socket;
  reason =
      error == ETIMEDOUT ? fmt::format("no answer within {:g} s", timeout_s) : std::strerror(error);
  return {};
}

bool readable_within(const Descriptor& socket, double timeout_s) {
  pollfd entry{socket.fd(), POLLIN, 0};
  return poll(&entry, 1, milliseconds(timeout_s)) > 0;
}

WakeUp::WakeUp() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) fail("cannot create an event for the control channel");
}

void WakeUp::signal() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(event_.fd(), &one, sizeof one);
}

void WakeUp::clear() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = read(event_.fd(), &count, sizeof count);
}

}  // namespace heteroperf
