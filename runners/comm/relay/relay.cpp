// One relay at a time: its configuration, the best chunk, and the loop that drives its two ends.
#include "runners/comm/relay/relay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runners/comm/relay/relay_task.hpp"

namespace heteroperf {
namespace {

constexpr int least_slots = 3, most_slots = 1024;
constexpr int most_tag = message_tags::first_reserved - 3;  // two more follow
constexpr double least_chunk = 4096, usual_chunk = 256 << 10;

}  // namespace

void check_staging(const RelayConfig& config, ProblemList& problems) {
  if (config.slots < least_slots || config.slots > most_slots) {
    problems.add(fmt::format("a relay of {} slots", config.slots),
                 "one is filled, one travels, one is emptied",
                 fmt::format("Use {} to {}", least_slots, most_slots));
  }
  if (!(config.timeout_s > 0)) {
    problems.add(fmt::format("a relay with a deadline of {:g} s", config.timeout_s),
                 "no copy would ever be in time", "Use a positive number of seconds");
  }
}

Bytes best_chunk(Bytes size, const RelayCosts& costs) {
  const double read = costs.read.value(), network = costs.network.value();
  const double write = costs.write.value();
  const auto n = static_cast<double>(size.value());
  double chunk = usual_chunk;
  if (read > 0 && network > 0 && write > 0) {
    const double all = 1 / read + 1 / network + 1 / write;
    const double slowest = std::max({1 / read, 1 / network, 1 / write});
    chunk = std::sqrt(n * costs.per_chunk.value() / (all - slowest));
  }
  chunk = std::min(std::max(chunk, least_chunk), std::max(n, 1.0));
  return Bytes(static_cast<std::uint64_t>(std::ceil(chunk / chunk_unit)) * chunk_unit);
}

Relay::Relay(Communicator& group, DeviceCopier& copier, const RelayConfig& config)
    : group_(group), copier_(copier), config_(config) {
  ProblemList problems;
  check_staging(config, problems);
  if (config.tag < 0 || config.tag > most_tag) {
    problems.add(fmt::format("a relay with tag {}", config.tag), "it uses two more after it",
                 fmt::format("Use 0 to {}", most_tag));
  }
  problems.throw_if_any();
}

RelayPlace Relay::place() const { return {group_, copier_, config_, RelayTags::from(config_.tag)}; }

void Relay::run(RelayEnd* sender, RelayEnd* receiver) {
  const auto is_busy = [](const RelayEnd* end) { return end != nullptr && !end->finished(); };
  try {
    for (Idle idle; is_busy(sender) || is_busy(receiver);) {
      const bool sent = sender != nullptr && sender->progress();
      const bool received = receiver != nullptr && receiver->progress();
      idle.after(sent || received);
    }
  } catch (...) {
    for (SlotMemory* memory : {&out_, &in_, &local_}) memory->abandon();
    throw;
  }
  if (sender != nullptr) sent_ = sender->statistics();
  if (receiver != nullptr) received_ = receiver->statistics();
}

void Relay::send(DeviceBytes values, RankId to) {
  run(make_relay_sender(place(), values, to, out_).get(), nullptr);
}

void Relay::receive(DeviceBytes values, RankId from) {
  run(nullptr, make_relay_receiver(place(), values, from, in_, local_, {}).get());
}

void Relay::receive_add(DeviceBytes values, DataType type, RankId from, Reduction reduction) {
  HETEROPERF_EXPECT(reduction != Reduction::average && values.bytes % size_of(type) == 0);
  const RelayAddition addition{type, reduction};
  run(nullptr, make_relay_receiver(place(), values, from, in_, local_, addition).get());
}

void Relay::exchange(DeviceBytes out, RankId to, DeviceBytes in, RankId from) {
  run(make_relay_sender(place(), out, to, out_).get(),
      make_relay_receiver(place(), in, from, in_, local_, {}).get());
}

}  // namespace heteroperf
