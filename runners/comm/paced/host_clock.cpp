#include "runners/comm/paced/host_clock.hpp"

#include <time.h>

#include <cerrno>

#include <fstream>
#include <string>

#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

constexpr Instant second = 1000000000;
/// A sleeper is woken about this late on an idle machine.
constexpr Instant spin = 70000;

}  // namespace

Instant host_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * second + now.tv_nsec;
}

void nap_until(Instant wake) {
  const timespec at{wake / second, wake % second};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

void sleep_until(Instant due) {
  if (due - host_now() > spin) nap_until(due - spin);
  while (host_now() < due) {
  }
}

std::uint64_t host_clock_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (!(file >> id)) return 0;
  std::uint64_t hash = 1;
  for (char c : id) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

}  // namespace heteroperf
