#include "runners/comm/relay/relay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

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

/// The ends that one call of a relay runs.
class RelayRun {
 public:
  explicit RelayRun(Relay& relay)
      : relay_(relay),
        place_{relay.group_, relay.copier_, relay.config_, RelayTags::from(relay.config_.tag)} {}

  RelayRun& send(DeviceBytes values, RankId to) {
    sender_ = make_relay_sender(place_, values, to, relay_.out_);
    return *this;
  }
  RelayRun& receive(DeviceBytes values, RankId from, std::optional<RelayAddition> addition = {}) {
    receiver_ = make_relay_receiver(place_, values, from, relay_.in_, relay_.local_, addition);
    return *this;
  }
  void finish() {
    try {
      for (Idle idle; is_busy(sender_) || is_busy(receiver_);) {
        const bool sent = sender_ && sender_->progress();
        const bool received = receiver_ && receiver_->progress();
        idle.after(sent || received);
      }
    } catch (...) {
      for (SlotMemory* memory : {&relay_.out_, &relay_.in_, &relay_.local_}) memory->abandon();
      throw;
    }
    if (sender_) relay_.sent_ = sender_->statistics();
    if (receiver_) relay_.received_ = receiver_->statistics();
  }

 private:
  static bool is_busy(const std::unique_ptr<RelayEnd>& end) { return end && !end->finished(); }

  Relay& relay_;
  RelayPlace place_;
  std::unique_ptr<RelayEnd> sender_, receiver_;
};

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

void Relay::send(DeviceBytes values, RankId to) { RelayRun(*this).send(values, to).finish(); }

void Relay::receive(DeviceBytes values, RankId from) {
  RelayRun(*this).receive(values, from).finish();
}

void Relay::receive_add(DeviceBytes values, DataType type, RankId from, Reduction reduction) {
  HETEROPERF_EXPECT(reduction != Reduction::average && values.bytes % size_of(type) == 0);
  RelayRun(*this).receive(values, from, RelayAddition{type, reduction}).finish();
}

void Relay::exchange(DeviceBytes out, RankId to, DeviceBytes in, RankId from) {
  RelayRun(*this).send(out, to).receive(in, from).finish();
}

}  // namespace heteroperf
