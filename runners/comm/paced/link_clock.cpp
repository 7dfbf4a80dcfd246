#include "runners/comm/paced/link_clock.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <string>

#include "metrics/base/random.hpp"

// A message passes two buckets, its sender's card and its link, and is modelled like this:
//
//     card   ──┤ n / card bandwidth ├──────────
//     link   ──┤ T(n) − latency      ├┤latency├─
//              ▲                      ▲        ▲
//            begins                 leaves   arrives
//
// T(n) is the link's curve. The card may begin earlier than the link by its burst, the bytes that
// it has saved up while it was idle.

namespace heteroperf {

namespace {

constexpr Instant second_ns = 1000000000;
/// A sleeper is woken about this late on an idle machine.
constexpr Instant spin = 70000;
constexpr double longest_s = 30.0 * 365 * 86400;

Instant on_card(Bytes size, const CardUse& card) {
  if (!card.bucket || card.bandwidth.value() <= 0) return 0;
  return to_duration(Seconds(static_cast<double>(size.value()) / card.bandwidth.value()));
}

}  // namespace

void nap_until(Instant wake) {
  const timespec at{wake / second_ns, wake % second_ns};
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

Instant to_duration(Seconds seconds) {
  return std::llround(std::clamp(seconds.value(), 0.0, longest_s) * 1e9);
}

Instant Bucket::take(Instant earliest, Instant duration, Instant saved) {
  Instant free_at = free_at_.load();
  while (true) {
    const Instant begin = std::max(earliest - saved, free_at);
    if (free_at_.compare_exchange_weak(free_at, begin + duration)) return begin;
  }
}

Passage pass(Instant posted, Bytes size, const LinkCurve& curve, Bucket& link,
             const CardUse& card) {
  const Instant latency = to_duration(curve.latency());
  Instant begin = std::max(posted, link.free_at());
  Instant card_end = begin;
  if (card.bucket) {
    const Instant card_time = on_card(size, card);
    const Instant card_begin = card.bucket->take(begin, card_time, on_card(card.burst, card));
    card_end = card_begin + card_time;
    begin = std::max(begin, card_begin);
  }
  const Instant leaves = std::max(begin + to_duration(curve.time(size)) - latency, card_end);
  link.take(begin, leaves - begin);
  return {posted, leaves, leaves + latency};
}

bool leaves_host(const RankPlace& from, const RankPlace& to) {
  if (from.host.empty() || to.host.empty()) return from.cluster != to.cluster;
  return from.host != to.host;
}

}  // namespace heteroperf
