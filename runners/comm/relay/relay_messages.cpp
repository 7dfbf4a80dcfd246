// Many relays between the same ranks at once, told apart by tags.
//
// The sender of a long message takes a *channel*, two of 128 tags that are its own while the relay
// lasts, and announces it with the relay's terms under the message's own tag. The receiver finds
// chunk and credit tags there. Since messages of one tag arrive in order, announcements match the
// receives in the order in which both were started, which is all the order that is needed. A later
// message of the same tag is not started before the earlier one is announced.
#include "runners/comm/relay/relay.hpp"

#include <algorithm>
#include <bitset>
#include <exception>
#include <map>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/comm/relay/relay_task.hpp"

namespace heteroperf {
namespace {

/// A handshake costs as much as moving this many bytes.
constexpr std::size_t small_bytes = 65536;

/// A message of one chunk: one copy and one message of the group.
class SmallMessage : public RelayTask {
 public:
  SmallMessage(const RelayPlace& place, DeviceBytes values, RankId peer, SlotMemory& slots)
      : place_(place), values_(values), peer_(peer), copier_(place.copier, place.config.timeout_s) {
    slots.reserve(place.copier, 1, values.bytes);
    staged_ = slots.slot(0, values.bytes);
  }
  bool finished() const override { return finished_; }

 protected:
  const RelayPlace place_;
  const DeviceBytes values_;
  const RankId peer_;
  WatchedCopier copier_;
  std::span<std::byte> staged_;
  WatchedCopier::Copy copy_;
  std::unique_ptr<Transfer> transfer_;
  bool finished_ = false;
};

/// Device to host, then the message.
class SmallSend final : public SmallMessage {
 public:
  SmallSend(const RelayPlace& place, DeviceBytes values, RankId to, SlotMemory& slots)
      : SmallMessage(place, values, to, slots) {
    if (!staged_.empty()) copy_ = copier_.start_read(values.address, staged_);
  }

  bool progress() override {
    if (transfer_) return !finished_ && (finished_ = transfer_->test());
    if (!staged_.empty() && !copier_.done(copy_, "the copy to the host", 0)) return false;
    transfer_ = place_.group.start_send({staged_.data(), staged_.size(), DataType::u8}, peer_,
                                        place_.tags.terms);
    return true;
  }
  bool announced() const override { return transfer_ != nullptr; }
};

/// The message, then host to device.
class SmallReceive final : public SmallMessage {
 public:
  SmallReceive(const RelayPlace& place, DeviceBytes values, RankId from, SlotMemory& slots)
      : SmallMessage(place, values, from, slots) {
    transfer_ = place.group.start_receive({staged_.data(), staged_.size(), DataType::u8}, from,
                                          place.tags.terms);
  }

  bool progress() override {
    if (finished_) return false;
    if (transfer_) {
      if (!transfer_->test()) return false;
      transfer_.reset();
      if (!staged_.empty()) copy_ = copier_.start_write(staged_, values_.address);
    }
    finished_ = staged_.empty() || copier_.done(copy_, "the copy to the device", 0);
    return true;
  }
};

/// The channels to one peer that are taken.
using Channels = std::bitset<message_tags::most_relay_channels>;

RelayTags tags_of(int tag, std::size_t channel) {
  const int data = message_tags::relay_channels + 2 * static_cast<int>(channel);
  return {tag, data, data + 1};
}

struct Message {
  DeviceBytes values;
  RankId peer;
  int tag = 0;
  bool sends = false, finished = false;
  std::exception_ptr failure{};  ///< thrown to whoever waits for this message; the rest go on
  std::optional<std::size_t> channel{};
  SlotMemory slots{}, local_slots{};
  /// Null until earlier messages of the same tag are announced.
  std::unique_ptr<RelayTask> task{};
};

}  // namespace

class RelayMessages::Traffic {
 public:
  Traffic(Communicator& group, DeviceCopier& copier, const RelayConfig& config)
      : group_(group), copier_(copier), config_(config) {}
  ~Traffic() {
    for (const auto& message : under_way_) abandon(*message);
  }
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  std::shared_ptr<Message> start(Message message) {
    auto started = std::make_shared<Message>(std::move(message));
    if (!free_slots_.empty()) {
      started->slots = std::move(free_slots_.back());
      free_slots_.pop_back();
    }
    under_way_.push_back(started);
    // Receives are posted at once, in the order of their start.
    if (!started->sends) open(*started);
    progress();
    return started;
  }

  bool progress() {
    bool moved = false;
    unannounced_.clear();
    for (const auto& message : under_way_) {
      try {
        moved = run(*message) || moved;
      } catch (...) {
        message->failure = std::current_exception();
        moved = true;
      }
    }
    std::erase_if(under_way_, [&](const std::shared_ptr<Message>& message) {
      if (message->failure) {
        abandon(*message);
      } else if (message->task && message->task->finished()) {
        retire(*message);
      }
      return message->finished;
    });
    return moved;
  }

 private:
  bool is_small(std::size_t bytes) const {
    return bytes <= small_bytes && bytes <= proposed_chunk(config_, bytes);
  }
  bool is_blocked(const Message& message) const {
    return std::ranges::find(unannounced_, std::pair(message.peer, message.tag)) !=
           unannounced_.end();
  }

  /// Makes the task of a message; returns false when all channels to its peer are taken.
  bool open(Message& message) {
    RelayPlace place{group_, copier_, config_, {message.tag, -1, -1}};
    if (is_small(message.values.bytes)) {
      if (message.sends) {
        message.task =
            std::make_unique<SmallSend>(place, message.values, message.peer, message.slots);
      } else {
        message.task =
            std::make_unique<SmallReceive>(place, message.values, message.peer, message.slots);
      }
      return true;
    }
    if (!message.sends) {
      message.task = make_relay_receiver(place, message.values, message.peer, message.slots,
                                         message.local_slots, std::nullopt);
      return true;
    }
    Channels& taken = taken_[message.peer];
    if (taken.all()) return false;
    std::size_t channel = 0;
    while (taken.test(channel)) ++channel;
    taken.set(channel);
    message.channel = channel;
    place.tags = tags_of(message.tag, channel);
    message.task = make_relay_sender(place, message.values, message.peer, message.slots);
    return true;
  }

  bool run(Message& message) {
    bool moved = false;
    if (!message.task && !is_blocked(message)) moved = open(message);
    if (message.task) moved = message.task->progress() || moved;
    if (message.sends && !(message.task && message.task->announced())) {
      unannounced_.emplace_back(message.peer, message.tag);
    }
    return moved;
  }

  void retire(Message& message) {
    message.finished = true;
    message.task.reset();
    if (message.channel) taken_[message.peer].reset(*message.channel);
    free_slots_.push_back(std::move(message.slots));
  }

  /// Ends a message whose slots may still be written to.
  static void abandon(Message& message) {
    message.finished = true;
    message.task.reset();
    message.slots.abandon();
    message.local_slots.abandon();
  }

  Communicator& group_;
  DeviceCopier& copier_;
  const RelayConfig config_;
  std::vector<std::shared_ptr<Message>> under_way_;  ///< in the order of their start
  std::vector<std::pair<RankId, int>> unannounced_;  ///< seen in this round of progress()
  std::map<RankId, Channels> taken_;
  std::vector<SlotMemory> free_slots_;
};

class RelayMessages::Arrival final : public Transfer {
 public:
  Arrival(std::shared_ptr<Traffic> traffic, std::shared_ptr<Message> message)
      : traffic_(std::move(traffic)), message_(std::move(message)) {}

  bool test() override {
    if (!message_->finished) traffic_->progress();
    if (message_->failure) std::rethrow_exception(message_->failure);
    return message_->finished;
  }
  void wait() override {
    for (Idle idle; !test();) idle.pause();
  }

 private:
  std::shared_ptr<Traffic> traffic_;
  std::shared_ptr<Message> message_;
};

RelayMessages::RelayMessages(Communicator& group, DeviceCopier& copier, const RelayConfig& config)
    : traffic_(std::make_shared<Traffic>(group, copier, config)) {
  ProblemList problems;
  check_staging(config, problems);
  problems.throw_if_any();
}

RelayMessages::~RelayMessages() = default;

std::unique_ptr<Transfer> RelayMessages::start_send(DeviceBytes values, RankId to, int tag) {
  return std::make_unique<Arrival>(traffic_, traffic_->start({values, to, tag, true}));
}

std::unique_ptr<Transfer> RelayMessages::start_receive(DeviceBytes values, RankId from, int tag) {
  return std::make_unique<Arrival>(traffic_, traffic_->start({values, from, tag, false}));
}

bool RelayMessages::progress() { return traffic_->progress(); }

}  // namespace heteroperf
