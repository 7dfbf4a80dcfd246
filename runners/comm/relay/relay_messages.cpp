#include "runners/comm/relay/relay_messages.hpp"

#include <algorithm>
#include <bitset>
#include <exception>
#include <map>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/comm/relay/relay_receiver.hpp"
#include "runners/comm/relay/relay_sender.hpp"

namespace heteroperf {
namespace {

/// A handshake costs as much as moving so many bytes.
constexpr std::size_t small_bytes = 65536;

/// Device to host, then one message.
class SmallSend final : public RelayTask {
 public:
  SmallSend(const RelayPlace& place, DeviceBytes values, RankId to, SlotMemory& slots)
      : place_(place), to_(to), copier_(place.copier, place.config.timeout_s) {
    slots.reserve(place.copier, 1, values.bytes);
    staged_ = slots.slot(0, values.bytes);
    if (values.bytes > 0) read_ = copier_.start_read(values.address, staged_);
  }

  bool progress() override {
    if (sending_) return !sent_ && (sent_ = sending_->test());
    if (!staged_.empty() && !copier_.done(read_, "the copy to the host", 0)) return false;
    sending_ = place_.group.start_send({staged_.data(), staged_.size(), DataType::u8}, to_,
                                       place_.tags.terms);
    return true;
  }
  bool finished() const override { return sent_; }
  bool announced() const override { return sending_ != nullptr; }

 private:
  const RelayPlace place_;
  const RankId to_;
  WatchedCopier copier_;
  std::span<std::byte> staged_;
  WatchedCopier::Copy read_;
  std::unique_ptr<Transfer> sending_;
  bool sent_ = false;
};

class SmallReceive final : public RelayTask {
 public:
  SmallReceive(const RelayPlace& place, DeviceBytes values, RankId from, SlotMemory& slots)
      : values_(values), copier_(place.copier, place.config.timeout_s) {
    slots.reserve(place.copier, 1, values.bytes);
    staged_ = slots.slot(0, values.bytes);
    receiving_ = place.group.start_receive({staged_.data(), staged_.size(), DataType::u8}, from,
                                           place.tags.terms);
  }

  bool progress() override {
    if (finished_) return false;
    if (receiving_) {
      if (!receiving_->test()) return false;
      receiving_.reset();
      if (!staged_.empty()) write_ = copier_.start_write(staged_, values_.address);
    }
    finished_ = staged_.empty() || copier_.done(write_, "the copy to the device", 0);
    return true;
  }
  bool finished() const override { return finished_; }

 private:
  const DeviceBytes values_;
  WatchedCopier copier_;
  std::span<std::byte> staged_;
  std::unique_ptr<Transfer> receiving_;
  WatchedCopier::Copy write_;
  bool finished_ = false;
};

/// Of the relays that this rank sends to one other.
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
  std::exception_ptr failure{};  ///< thrown to whoever waits for it; others go on
  std::optional<std::size_t> channel{};
  SlotMemory slots{}, own_slots{};
  std::unique_ptr<RelayTask>
      task{};  ///< null until an earlier message of the same tag is announced
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

  std::shared_ptr<Message> start(Message message);
  bool progress();

 private:
  bool is_small(std::size_t bytes) const {
    return bytes <= small_bytes &&
           static_cast<std::int64_t>(bytes) <= terms_of(config_, bytes).chunk;
  }
  bool waits_for_another(const Message& message) const {
    return std::ranges::find(unannounced_, std::pair(message.peer, message.tag)) !=
           unannounced_.end();
  }
  bool open(Message& message);
  bool run(Message& message);
  void retire(Message& message);
  /// Something may still write to its slots.
  static void abandon(Message& message);

  Communicator& group_;
  DeviceCopier& copier_;
  const RelayConfig config_;
  std::vector<std::shared_ptr<Message>> under_way_;  ///< in the order of their start
  std::vector<std::pair<RankId, int>> unannounced_;  ///< of one round of progress()
  std::map<RankId, Channels> taken_;
  std::vector<SlotMemory> free_slots_;
};

std::shared_ptr<Message> RelayMessages::Traffic::start(Message message) {
  auto started = std::make_shared<Message>(std::move(message));
  if (!free_slots_.empty()) {
    started->slots = std::move(free_slots_.back());
    free_slots_.pop_back();
  }
  under_way_.push_back(started);
  // Receives are posted in order, from here.
  if (!started->sends) open(*started);
  progress();
  return started;
}

/// Whether it could begin.
bool RelayMessages::Traffic::open(Message& message) {
  RelayPlace place{group_, copier_, config_, {message.tag, -1, -1}};
  const bool small = is_small(message.values.bytes);
  if (!message.sends) {
    if (small) {
      message.task =
          std::make_unique<SmallReceive>(place, message.values, message.peer, message.slots);
    } else {
      message.task =
          std::make_unique<RelayReceiver>(place, message.values, message.peer, message.slots,
                                          message.own_slots, std::optional<RelayAddition>());
    }
    return true;
  }
  if (small) {
    message.task = std::make_unique<SmallSend>(place, message.values, message.peer, message.slots);
    return true;
  }
  Channels& taken = taken_[message.peer];
  if (taken.all()) return false;
  std::size_t channel = 0;
  while (taken.test(channel)) ++channel;
  taken.set(channel);
  message.channel = channel;
  place.tags = tags_of(message.tag, channel);
  message.task = std::make_unique<RelaySender>(place, message.values, message.peer, message.slots);
  return true;
}

bool RelayMessages::Traffic::run(Message& message) {
  bool moved = false;
  if (!message.task && !waits_for_another(message)) moved = open(message);
  if (message.task) moved = message.task->progress() || moved;
  if (message.sends && !(message.task && message.task->announced())) {
    unannounced_.emplace_back(message.peer, message.tag);
  }
  return moved;
}

void RelayMessages::Traffic::retire(Message& message) {
  message.finished = true;
  message.task.reset();
  if (message.channel) taken_[message.peer].reset(*message.channel);
  free_slots_.push_back(std::move(message.slots));
}

bool RelayMessages::Traffic::progress() {
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

void RelayMessages::Traffic::abandon(Message& message) {
  message.finished = true;
  message.task.reset();
  message.slots.abandon();
  message.own_slots.abandon();
}

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
