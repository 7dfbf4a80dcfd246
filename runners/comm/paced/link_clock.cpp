#include "runners/comm/paced/link_clock.hpp"

#include <cmath>

namespace heteroperf {
namespace {

constexpr double longest_s = 30.0 * 365 * 86400;

Instant on_card(Bytes size, BytesPerSecond bandwidth) {
  if (bandwidth.value() <= 0) return 0;
  return to_duration(Seconds(static_cast<double>(size.value()) / bandwidth.value()));
}

}  // namespace

Instant to_duration(Seconds seconds) {
  return std::llround(std::clamp(seconds.value(), 0.0, longest_s) * 1e9);
}

Instant Bucket::take(Instant earliest, Instant duration) {
  Instant free_at = free_at_.load();
  while (true) {
    const Instant begin = std::max(earliest, free_at);
    if (free_at_.compare_exchange_weak(free_at, begin + duration)) return begin;
  }
}

Passage pass(Instant posted, Bytes size, const LinkCurve& curve, Bucket& link,
             const CardUse& card) {
  const Instant latency = to_duration(curve.latency());
  const Instant card_time = card.bucket ? on_card(size, card.bandwidth) : 0;
  const Instant on_link = std::max(to_duration(curve.time(size)) - latency, card_time);
  Instant begin = std::max(posted, link.free_at());
  if (card.bucket) begin = card.bucket->take(begin, card_time);
  begin = link.take(begin, on_link);
  return {posted, begin + on_link, begin + on_link + latency};
}

}  // namespace heteroperf
