// Messages between devices that cannot talk to each other: a buffer goes from a device to its host,
// over the network to the other host, and from there to the other device.
//
// The buffer is cut into *chunks*. Each side has a few *slots* of staging memory, of one chunk
// each; chunk i uses slot i modulo their number. So one slot is filled while another one travels
// and a third one is emptied, and all three stages work at once with a constant amount of memory.
//
// The two sides first exchange their *terms*: bytes, chunk and slots. The smaller chunk holds. The
// receiver's slots are *credits*: it posts the receive of a chunk, then grants its slot, and the
// sender never has more chunks under way than were granted. So a slow receiver holds the sender
// back and costs no memory. Every grant after the first slots is a message with the number of
// chunks granted so far.
//
// An end never waits. progress() looks at every stage once and starts what can be started. A short
// message is a single chunk that travels with the message's own tag; its ends have nothing to agree
// about.
//
// Many relays between the same ranks go on at once, told apart by tags. The sender of a long
// message takes a *channel*, two of 128 tags that are its own while the relay lasts, and announces
// it with the relay's terms under the message's own tag. The receiver finds chunk and credit tags
// there. Since messages of one tag arrive in order, announcements match the receives in the order
// in which both were started, which is all the order that is needed. A later message of the same
// tag is not started before the earlier one is announced.
#include "runners/comm/relay/relay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <deque>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

/// Chunks begin at multiples of this many bytes, so that they hold whole elements of any type.
constexpr std::int64_t chunk_unit = 8;
/// A handshake costs as much as moving this many bytes.
constexpr std::int64_t small_message_bytes = 65536;

/// The tags of a relay. Messages to the peer and from it never share a tag, so that two relays of
/// opposite directions do not mix.
struct RelayTags {
  int terms = 0;   ///< from the sender: its terms
  int data = -1;   ///< chunks; a receiver learns the tags of data and reply from the sender's terms
  int reply = -1;  ///< from the receiver: its terms, then credits
};

/// The things that both ends work with; all references outlive them.
struct RelayPlace {
  Communicator& group;
  DeviceCopier& copier;
  const RelayConfig& config;
  RelayTags tags;
};

/// The values that the two sides must agree about.
struct RelayTerms {
  std::int64_t bytes = 0, chunk = 0, slots = 0;

  /// A message of no bytes has one empty chunk.
  std::size_t chunks() const {
    return static_cast<std::size_t>(std::max<std::int64_t>(1, (bytes + chunk - 1) / chunk));
  }
  std::size_t chunk_begin(std::size_t index) const {
    return index * static_cast<std::size_t>(chunk);
  }
  std::size_t chunk_bytes(std::size_t index) const {
    return std::min(chunk_begin(index + 1), static_cast<std::size_t>(bytes)) - chunk_begin(index);
  }
  bool is_small() const { return bytes <= small_message_bytes && bytes <= chunk; }
};

RelayTerms terms_of(const RelayConfig& config, std::size_t size) {
  const auto bytes = static_cast<std::int64_t>(size);
  const auto chunk =
      std::min(static_cast<std::int64_t>(config.chunk.value()), std::max(bytes, chunk_unit));
  RelayTerms terms{bytes, (chunk + chunk_unit - 1) / chunk_unit * chunk_unit, config.slots};
  if (terms.is_small()) terms.slots = 1;
  return terms;
}

enum class RelaySide { sender, receiver };

/// One side of a message between devices. It goes as far as it can without waiting.
class RelayEnd {
 public:
  RelayEnd(const RelayPlace& place, DeviceBytes values, RankId peer, SlotMemory& slots,
           RelaySide side)
      : place_(place),
        values_(values),
        peer_(peer),
        side_(side),
        slots_(slots),
        copier_(place.copier, place.config.timeout_s),
        terms_(terms_of(place.config, values.bytes)),
        tags_(place.tags),
        own_slots_(terms_.slots),
        out_{terms_.bytes, terms_.chunk, terms_.slots, tags_.data, tags_.reply} {
    if (terms_.is_small()) {
      tags_.data = tags_.terms;
      return;
    }
    const bool sends = side == RelaySide::sender;
    hearing_ = place.group.start_receive(std::span<std::int64_t>(in_), peer,
                                         sends ? tags_.reply : tags_.terms);
    if (sends) tell(tags_.terms);
  }
  virtual ~RelayEnd() = default;

  /// Called once before progress(). A short message begins at once.
  void start() {
    if (terms_.is_small()) agree();
  }
  /// Returns true when anything moved. Throws as RelayMessages does.
  bool progress() {
    if (agreed_) return move();
    if (!shake_hands()) return false;
    agree();
    return true;
  }
  virtual bool finished() const = 0;
  /// Returns true when the first message of this end is under way, so that the first message of a
  /// later end cannot be taken for it.
  virtual bool announced() const { return true; }

 protected:
  virtual void begin() = 0;
  /// Looks at every stage once; returns true when anything moved.
  virtual bool move() = 0;

  std::byte* on_device(std::size_t chunk) const {
    return values_.address + terms_.chunk_begin(chunk);
  }
  std::span<std::byte> slot(const SlotMemory& memory, std::size_t chunk) const {
    return memory.slot(chunk, terms_.chunk_bytes(chunk));
  }

  const RelayPlace place_;
  const DeviceBytes values_;
  const RankId peer_;
  const RelaySide side_;
  SlotMemory& slots_;
  WatchedCopier copier_;
  RelayTerms terms_;  ///< proposed, then agreed
  RelayTags tags_;    ///< complete once agreed
  bool agreed_ = false;
  std::size_t chunks_ = 0, own_slots_;

 private:
  void tell(int tag) {
    telling_ = place_.group.start_send(std::span<const std::int64_t>(out_), peer_, tag);
  }
  /// Tells the peer this side's terms and hears the peer's; true once both know the chunk that both
  /// use and the receiver's slots. A receiver learns the tags for data and reply from the sender's
  /// terms, and answers then. Throws Error{run_failed} when the bytes differ.
  bool shake_hands() {
    if (!hearing_->test()) return false;
    if (!telling_) {
      tags_.data = static_cast<int>(in_[3]);
      tags_.reply = static_cast<int>(in_[4]);
      tell(tags_.reply);
    }
    if (!telling_->test()) return false;
    const bool receives = side_ == RelaySide::receiver;
    if (in_[0] != terms_.bytes) {
      throw Error(ErrorKind::run_failed,
                  {{fmt::format("the relay's two sides disagree: rank {} {} {} bytes, rank {} {} "
                                "{} bytes",
                                place_.group.rank().value(), receives ? "awaits" : "sends",
                                terms_.bytes, peer_.value(), receives ? "sends" : "awaits", in_[0]),
                    "both need the same number of bytes", ""}});
    }
    terms_.chunk = std::min(terms_.chunk, in_[1]);
    if (!receives) terms_.slots = in_[2];
    return true;
  }
  void agree() {
    chunks_ = terms_.chunks();
    agreed_ = true;
    begin();
  }

  /// Bytes, chunk, slots, data tag, reply tag.
  std::array<std::int64_t, 5> out_, in_{};
  std::unique_ptr<Transfer> telling_, hearing_;  ///< null where the message is short
};

/// Device to host, host to peer. Chunks [sent, read) are in slots or on their way to them, chunks
/// [left, sent) are on their way to the peer.
class RelaySender final : public RelayEnd {
 public:
  RelaySender(const RelayPlace& place, DeviceBytes values, RankId to, SlotMemory& slots)
      : RelayEnd(place, values, to, slots, RelaySide::sender) {}

  bool finished() const override { return agreed_ && left_ == chunks_ && !credit_transfer_; }
  bool announced() const override { return !terms_.is_small() || sent_ > 0; }

 private:
  void begin() override {
    reads_.resize(own_slots_);
    transfers_.resize(own_slots_);
    slots_.reserve(place_.copier, own_slots_, terms_.chunk);
    granted_ = terms_.slots;
    expect_credit();
  }
  bool move() override {
    bool moved = take_credit();
    moved = retire() || moved;
    moved = read_next() || moved;
    return send_next() || moved;
  }

  void expect_credit() {
    if (granted_ >= static_cast<std::int64_t>(chunks_)) return;
    credit_transfer_ =
        place_.group.start_receive(std::span<std::int64_t>(&credit_, 1), peer_, tags_.reply);
  }
  bool take_credit() {
    if (!credit_transfer_ || !credit_transfer_->test()) return false;
    credit_transfer_.reset();
    granted_ = credit_;
    expect_credit();
    return true;
  }
  bool read_next() {
    if (read_ == chunks_ || read_ - left_ == reads_.size()) return false;
    reads_[read_ % reads_.size()] = copier_.start_read(on_device(read_), slot(slots_, read_));
    ++read_;
    return true;
  }
  bool send_next() {
    if (sent_ == read_ || static_cast<std::int64_t>(sent_) >= granted_) return false;
    const std::size_t index = sent_ % reads_.size();
    if (!copier_.done(reads_[index], "the copy to the host", sent_)) return false;
    const std::span<const std::byte> chunk = slot(slots_, sent_);
    transfers_[index] =
        place_.group.start_send({chunk.data(), chunk.size(), DataType::u8}, peer_, tags_.data);
    ++sent_;
    return true;
  }
  bool retire() {
    if (left_ == sent_) return false;
    auto& transfer = transfers_[left_ % transfers_.size()];
    if (!transfer->test()) return false;
    transfer.reset();
    ++left_;
    return true;
  }

  std::vector<WatchedCopier::Copy> reads_;            ///< by slot
  std::vector<std::unique_ptr<Transfer>> transfers_;  ///< by slot
  std::unique_ptr<Transfer> credit_transfer_;
  std::int64_t granted_ = 0, credit_ = 0;
  std::size_t read_ = 0, sent_ = 0, left_ = 0;
};

/// Peer to host, host to device. Chunks [arrived, granted) may come at any time and have their
/// slots; chunks [written, arrived) are on their way to the device.
class RelayReceiver final : public RelayEnd {
 public:
  RelayReceiver(const RelayPlace& place, DeviceBytes values, RankId from, SlotMemory& slots,
                SlotMemory& local_slots, std::optional<RelayAddition> addition)
      : RelayEnd(place, values, from, slots, RelaySide::receiver),
        local_slots_(local_slots),
        addition_(addition) {}

  bool finished() const override { return agreed_ && written_ == chunks_ && credits_.empty(); }

 private:
  struct Credit {
    std::int64_t granted;
    std::unique_ptr<Transfer> transfer;
  };

  void begin() override {
    transfers_.resize(own_slots_);
    reads_.resize(own_slots_);
    writes_.resize(own_slots_);
    slots_.reserve(place_.copier, own_slots_, terms_.chunk);
    if (addition_) local_slots_.reserve(place_.copier, own_slots_, terms_.chunk);
    while (granted_ < std::min(own_slots_, chunks_)) grant_next();
  }
  bool move() override {
    bool moved = retire();
    moved = take_arrival() || moved;
    return forget_credits() || moved;
  }

  /// Makes the slot of the next chunk ready.
  void grant_next() {
    const std::size_t index = granted_ % transfers_.size();
    const std::span<std::byte> chunk = slot(slots_, granted_);
    transfers_[index] =
        place_.group.start_receive({chunk.data(), chunk.size(), DataType::u8}, peer_, tags_.data);
    if (addition_) {
      reads_[index] = copier_.start_read(on_device(granted_), slot(local_slots_, granted_));
    }
    ++granted_;
  }
  bool take_arrival() {
    if (arrived_ == granted_) return false;
    const std::size_t index = arrived_ % transfers_.size();
    if (transfers_[index]) {
      if (!transfers_[index]->test()) return false;
      transfers_[index].reset();
    }
    if (addition_) {
      if (!copier_.done(reads_[index], "the copy to the host", arrived_)) return false;
      add(arrived_);
    }
    writes_[index] = copier_.start_write(slot(slots_, arrived_), on_device(arrived_));
    ++arrived_;
    return true;
  }
  void add(std::size_t chunk) {
    const std::span<std::byte> bytes = slot(slots_, chunk);
    void* const arrived = bytes.data();
    const void* const sources[] = {slot(local_slots_, chunk).data(), arrived};
    reduce_in_order(sources, {&arrived, 1}, bytes.size() / size_of(addition_->type),
                    addition_->type, addition_->reduction);
  }
  /// Grants a slot that is free again for the chunk that comes into it next.
  bool retire() {
    if (written_ == arrived_) return false;
    if (!copier_.done(writes_[written_ % writes_.size()], "the copy to the device", written_)) {
      return false;
    }
    ++written_;
    if (granted_ == chunks_) return true;
    grant_next();
    // The message reads the credit until it has ended; a deque leaves its elements in place.
    Credit& grant = credits_.emplace_back(Credit{static_cast<std::int64_t>(granted_), nullptr});
    grant.transfer = place_.group.start_send(std::span<const std::int64_t>(&grant.granted, 1),
                                             peer_, tags_.reply);
    return true;
  }
  bool forget_credits() {
    if (credits_.empty() || !credits_.front().transfer->test()) return false;
    credits_.pop_front();
    return true;
  }

  SlotMemory& local_slots_;
  const std::optional<RelayAddition> addition_;
  std::vector<std::unique_ptr<Transfer>> transfers_;  ///< by slot; null once the chunk is here
  std::vector<WatchedCopier::Copy> reads_, writes_;   ///< by slot
  std::deque<Credit> credits_;                        ///< under way, oldest first
  std::size_t granted_ = 0, arrived_ = 0, written_ = 0;
};

/// The channels to one peer that are taken.
using Channels = std::bitset<message_tags::most_relay_channels>;

struct Message {
  DeviceBytes values;
  RankId peer;
  int tag = 0;
  bool sends = false;
  std::optional<RelayAddition> addition{};
  bool finished = false;
  std::exception_ptr failure{};  ///< thrown to whoever waits for this message; the rest go on
  std::optional<std::size_t> channel{};
  SlotMemory slots{}, local_slots{};
  /// Null until earlier messages of the same tag are announced.
  std::unique_ptr<RelayEnd> end{};
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
      } else if (message->end && message->end->finished()) {
        retire(*message);
      }
      return message->finished;
    });
    return moved;
  }

 private:
  bool is_blocked(const Message& message) const {
    return std::ranges::find(unannounced_, std::pair(message.peer, message.tag)) !=
           unannounced_.end();
  }

  /// Makes this side's end of a message; returns false when all channels to its peer are taken.
  bool open(Message& message) {
    RelayPlace place{group_, copier_, config_, {message.tag}};
    if (!message.sends) {
      message.end =
          std::make_unique<RelayReceiver>(place, message.values, message.peer, message.slots,
                                          message.local_slots, message.addition);
    } else {
      if (!terms_of(config_, message.values.bytes).is_small()) {
        Channels& taken = taken_[message.peer];
        if (taken.all()) return false;
        std::size_t channel = 0;
        while (taken.test(channel)) ++channel;
        taken.set(channel);
        message.channel = channel;
        place.tags.data = message_tags::relay_channels + 2 * static_cast<int>(channel);
        place.tags.reply = place.tags.data + 1;
      }
      message.end =
          std::make_unique<RelaySender>(place, message.values, message.peer, message.slots);
    }
    message.end->start();
    return true;
  }

  bool run(Message& message) {
    bool moved = false;
    if (!message.end && !is_blocked(message)) moved = open(message);
    if (message.end) moved = message.end->progress() || moved;
    if (message.sends && !(message.end && message.end->announced())) {
      unannounced_.emplace_back(message.peer, message.tag);
    }
    return moved;
  }

  void retire(Message& message) {
    message.finished = true;
    message.end.reset();
    if (message.channel) taken_[message.peer].reset(*message.channel);
    free_slots_.push_back(std::move(message.slots));
  }

  /// Ends a message whose slots may still be written to.
  static void abandon(Message& message) {
    message.finished = true;
    message.end.reset();
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
    for (Idle idle; !message_->finished;) idle.after(traffic_->progress());
    test();
  }

 private:
  std::shared_ptr<Traffic> traffic_;
  std::shared_ptr<Message> message_;
};

RelayMessages::RelayMessages(Communicator& group, DeviceCopier& copier, const RelayConfig& config)
    : traffic_(std::make_shared<Traffic>(group, copier, config)) {
  // One slot is filled, one travels, one is emptied.
  HETEROPERF_EXPECT(config.slots >= 3 && config.timeout_s > 0);
}

RelayMessages::~RelayMessages() = default;

std::unique_ptr<Transfer> RelayMessages::start_send(DeviceBytes values, RankId to, int tag) {
  return std::make_unique<Arrival>(traffic_, traffic_->start({values, to, tag, true}));
}

std::unique_ptr<Transfer> RelayMessages::start_receive(DeviceBytes values, RankId from, int tag,
                                                       std::optional<RelayAddition> addition) {
  HETEROPERF_EXPECT(!addition || (addition->reduction != Reduction::average &&
                                  values.bytes % size_of(addition->type) == 0));
  return std::make_unique<Arrival>(traffic_, traffic_->start({values, from, tag, false, addition}));
}

bool RelayMessages::progress() { return traffic_->progress(); }

}  // namespace heteroperf
