#include "runners/comm/relay/relay.hpp"

#include <fmt/format.h>

#include <array>

#include "metrics/base/error.hpp"
#include "runners/comm/relay/relay_receiver.hpp"
#include "runners/comm/relay/relay_sender.hpp"

namespace heteroperf {
namespace {

constexpr int least_slots = 3, most_slots = 1024;
constexpr int most_tag = message_tags::first_reserved - 3;  // two more follow

void check(const RelayConfig& config) {
  ProblemList problems;
  check_staging(config, problems);
  if (config.tag < 0 || config.tag > most_tag) {
    problems.add(fmt::format("a relay with tag {}", config.tag), "it uses two more after it",
                 fmt::format("Use 0 to {}", most_tag));
  }
  problems.throw_if_any();
}

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

/// Kept from call to call.
struct Relay::Staging {
  SlotMemory out, in, own;

  template <class... Tasks>
  void run(Tasks&... tasks) {
    const std::array<RelayTask*, sizeof...(tasks)> all{&tasks...};
    try {
      run_relay(all);
    } catch (...) {
      for (SlotMemory* memory : {&out, &in, &own}) memory->abandon();
      throw;
    }
  }
};

Relay::Relay(Communicator& group, DeviceCopier& copier, const RelayConfig& config)
    : group_(group), copier_(copier), config_(config), staging_(std::make_unique<Staging>()) {
  check(config);
}

Relay::~Relay() = default;

RelayPlace Relay::place() const { return {group_, copier_, config_, RelayTags::from(config_.tag)}; }

void Relay::send(DeviceBytes values, RankId to) {
  RelaySender sender(place(), values, to, staging_->out);
  staging_->run(sender);
  sent_ = sender.statistics();
}

void Relay::receive(DeviceBytes values, RankId from) {
  RelayReceiver receiver(place(), values, from, staging_->in, staging_->own, {});
  staging_->run(receiver);
  received_ = receiver.statistics();
}

void Relay::receive_add(DeviceBytes values, DataType type, RankId from, Reduction reduction) {
  HETEROPERF_EXPECT(reduction != Reduction::average && values.bytes % size_of(type) == 0);
  RelayReceiver receiver(place(), values, from, staging_->in, staging_->own,
                         RelayAddition{type, reduction});
  staging_->run(receiver);
  received_ = receiver.statistics();
}

void Relay::exchange(DeviceBytes out, RankId to, DeviceBytes in, RankId from) {
  RelaySender sender(place(), out, to, staging_->out);
  RelayReceiver receiver(place(), in, from, staging_->in, staging_->own, {});
  staging_->run(sender, receiver);
  sent_ = sender.statistics();
  received_ = receiver.statistics();
}

}  // namespace heteroperf
