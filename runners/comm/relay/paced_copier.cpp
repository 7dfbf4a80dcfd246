#include "runners/comm/relay/paced_copier.hpp"

#include <cstring>

#include "metrics/base/error.hpp"
#include "runners/comm/paced/link_clock.hpp"

namespace heteroperf {

DeviceCopier::Ticket PacedCopier::start(Engine& engine, const std::byte* from, std::byte* to,
                                        std::size_t bytes) {
  HETEROPERF_EXPECT(engine.rates.bandwidth.value() > 0);
  const double transfer_s = static_cast<double>(bytes) / engine.rates.bandwidth.value();
  const Instant takes = to_duration(engine.rates.latency + Seconds(transfer_s));
  const Instant begin = engine.busy.take(host_now(), takes);
  under_way_.emplace(next_, Copy{begin + takes, from, to, bytes});
  return next_++;
}

bool PacedCopier::done(Ticket ticket) {
  const auto found = under_way_.find(ticket);
  HETEROPERF_EXPECT(found != under_way_.end());
  const Copy& copy = found->second;
  if (host_now() < copy.due) return false;
  if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);
  under_way_.erase(found);
  return true;
}

}  // namespace heteroperf
