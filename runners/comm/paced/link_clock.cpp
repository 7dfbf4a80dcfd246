#include "runners/comm/paced/link_clock.hpp"

#include <cmath>

namespace heteroperf {
namespace {

constexpr double longest_s = 30.0 * 365 * 86400;

Instant on_card(Bytes size, const CardUse& card) {
  if (!card.bucket || card.bandwidth.value() <= 0) return 0;
  return to_duration(Seconds(static_cast<double>(size.value()) / card.bandwidth.value()));
}

}  // namespace

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

}  // namespace heteroperf
