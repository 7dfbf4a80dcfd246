// The two ends of a relay: a buffer goes from a device to its host, over the network to the other
// host, and from there to the other device.
//
// The buffer is cut into *chunks*. Each side has a few *slots* of staging memory, of one chunk
// each; chunk i uses slot i modulo their number. So one slot is filled while another one travels
// and a third one is emptied, and all three stages work at once with a constant amount of memory.
//
// The two sides first exchange their *terms*: bytes, chunk, slots and mode. The smaller chunk
// holds. The receiver's slots are *credits*: it posts the receive of a chunk, then grants its slot,
// and the sender never has more chunks under way than were granted. So a slow receiver holds the
// sender back and costs no memory. Every grant after the first slots is a message with the number
// of chunks granted so far.
//
// An end never waits. progress() looks at every stage once and starts what can be started.
#include "runners/comm/relay/relay_task.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

/// The values that the two sides must agree about.
struct RelayTerms {
  std::int64_t bytes = 0, chunk = 0, slots = 0, mode = 0;

  std::size_t chunks() const { return static_cast<std::size_t>((bytes + chunk - 1) / chunk); }
  std::size_t chunk_begin(std::size_t index) const {
    return index * static_cast<std::size_t>(chunk);
  }
  std::size_t chunk_bytes(std::size_t index) const {
    return std::min(chunk_begin(index + 1), static_cast<std::size_t>(bytes)) - chunk_begin(index);
  }
  std::string text() const {
    const bool serial = mode == static_cast<std::int64_t>(RelayMode::serial);
    return fmt::format("{} bytes, {}", bytes, serial ? "serial" : "pipelined");
  }
};

RelayTerms terms_of(const RelayConfig& config, std::size_t bytes) {
  const auto unit = static_cast<std::int64_t>(chunk_unit);
  auto chunk = static_cast<std::int64_t>(config.chunk.value());
  if (chunk == 0) chunk = static_cast<std::int64_t>(best_chunk(Bytes(bytes), config.costs).value());
  const bool serial = config.mode == RelayMode::serial;
  const auto whole = std::max(static_cast<std::int64_t>(bytes), unit);
  chunk = serial ? whole : std::min(chunk, whole);
  chunk = (chunk + unit - 1) / unit * unit;
  return {static_cast<std::int64_t>(bytes), chunk, serial ? 1 : config.slots,
          static_cast<std::int64_t>(config.mode)};
}

enum class Side { sender, receiver };

/// Tells the peer this side's terms and hears the peer's. A receiver may learn the tags for data
/// and reply from the sender's terms; it answers then.
class Handshake {
 public:
  Handshake(Communicator& group, RankId peer, const RelayTags& tags, const RelayTerms& proposed,
            Side side)
      : group_(group),
        peer_(peer),
        tags_(tags),
        proposed_(proposed),
        side_(side),
        out_{proposed.bytes, proposed.chunk, proposed.slots, proposed.mode, tags.data, tags.reply} {
    const bool sends = side == Side::sender;
    receiving_ =
        group.start_receive(std::span<std::int64_t>(in_), peer, sends ? tags.reply : tags.terms);
    if (sends) sending_ = group.start_send(std::span<const std::int64_t>(out_), peer, tags.terms);
    if (!sends && tags.reply >= 0) answer();
  }

  /// Returns the chunk that both sides use and the receiver's slots, once they are known. Throws
  /// Error{run_failed} when the bytes or modes differ.
  std::optional<RelayTerms> agreed() {
    if (!receiving_->test()) return std::nullopt;
    if (!sending_) {
      tags_.data = static_cast<int>(in_[4]);
      tags_.reply = static_cast<int>(in_[5]);
      answer();
    }
    if (!sending_->test()) return std::nullopt;
    const bool receives = side_ == Side::receiver;
    const RelayTerms heard{in_[0], in_[1], in_[2], in_[3]};
    if (heard.bytes != proposed_.bytes || heard.mode != proposed_.mode) {
      throw Error(
          ErrorKind::run_failed,
          {{fmt::format("the relay's two sides disagree: rank {} {} {}, rank {} {} {}",
                        group_.rank().value(), receives ? "awaits" : "sends", proposed_.text(),
                        peer_.value(), receives ? "sends" : "awaits", heard.text()),
            "both need the same number of bytes and the same mode", ""}});
    }
    return RelayTerms{proposed_.bytes, std::min(proposed_.chunk, heard.chunk),
                      receives ? proposed_.slots : heard.slots, proposed_.mode};
  }
  /// Complete once agreed.
  const RelayTags& tags() const { return tags_; }

 private:
  void answer() {
    sending_ = group_.start_send(std::span<const std::int64_t>(out_), peer_, tags_.reply);
  }

  Communicator& group_;
  const RankId peer_;
  RelayTags tags_;
  const RelayTerms proposed_;
  const Side side_;
  /// Bytes, chunk, slots, mode, data tag, reply tag.
  std::array<std::int64_t, 6> out_, in_{};
  std::unique_ptr<Transfer> sending_, receiving_;
};

/// The part that both ends have in common.
class ChunkEnd : public RelayEnd {
 public:
  ChunkEnd(const RelayPlace& place, DeviceBytes values, RankId peer, SlotMemory& slots, Side side)
      : place_(place),
        values_(values),
        peer_(peer),
        slots_(slots),
        copier_(place.copier, place.config.timeout_s),
        handshake_(place.group, peer, place.tags, terms_of(place.config, values.bytes), side) {}

  bool progress() override {
    if (agreed_) return move();
    const auto terms = handshake_.agreed();
    if (!terms) return false;
    terms_ = *terms;
    chunks_ = terms_.chunks();
    agreed_ = true;
    begin();
    return true;
  }
  RelayStatistics statistics() const override {
    return {chunks_, Bytes(static_cast<std::uint64_t>(terms_.chunk)), Bytes(slots_.bytes()), 0,
            static_cast<int>(terms_.slots)};
  }

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
  SlotMemory& slots_;
  WatchedCopier copier_;
  Handshake handshake_;
  RelayTerms terms_;
  bool agreed_ = false;
  std::size_t chunks_ = 0;
};

/// Device to host, host to peer. Chunks [sent, read) are in slots or on their way to them, chunks
/// [left, sent) are on their way to the peer.
class RelaySender final : public ChunkEnd {
 public:
  RelaySender(const RelayPlace& place, DeviceBytes values, RankId to, SlotMemory& slots)
      : ChunkEnd(place, values, to, slots, Side::sender) {}

  bool finished() const override { return agreed_ && left_ == chunks_ && !credit_transfer_; }
  RelayStatistics statistics() const override {
    RelayStatistics statistics = ChunkEnd::statistics();
    statistics.most_under_way = most_under_way_;
    return statistics;
  }

 private:
  void begin() override {
    const auto slots = static_cast<std::size_t>(terms_of(place_.config, values_.bytes).slots);
    reads_.resize(slots);
    transfers_.resize(slots);
    slots_.reserve(place_.copier, slots, terms_.chunk);
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
        place_.group.start_receive(std::span<std::int64_t>(&credit_, 1), peer_, place_.tags.reply);
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
    transfers_[index] = place_.group.start_send({chunk.data(), chunk.size(), DataType::u8}, peer_,
                                                place_.tags.data);
    ++sent_;
    const auto released = granted_ - terms_.slots;
    most_under_way_ =
        std::max(most_under_way_, static_cast<int>(static_cast<std::int64_t>(sent_) - released));
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
  int most_under_way_ = 0;
};

/// Peer to host, host to device. Chunks [arrived, granted) may come at any time and have their
/// slots; chunks [written, arrived) are on their way to the device.
class RelayReceiver final : public ChunkEnd {
 public:
  RelayReceiver(const RelayPlace& place, DeviceBytes values, RankId from, SlotMemory& slots,
                SlotMemory& local_slots, std::optional<RelayAddition> addition)
      : ChunkEnd(place, values, from, slots, Side::receiver),
        local_slots_(local_slots),
        addition_(addition) {}

  bool finished() const override { return agreed_ && written_ == chunks_ && credits_.empty(); }
  RelayStatistics statistics() const override {
    RelayStatistics statistics = ChunkEnd::statistics();
    statistics.staging += Bytes(local_slots_.bytes());
    return statistics;
  }

 private:
  struct Credit {
    std::int64_t granted;
    std::unique_ptr<Transfer> transfer;
  };

  void begin() override {
    const std::size_t slots = terms_.slots;
    const std::size_t chunk = terms_.chunk;
    transfers_.resize(slots);
    reads_.resize(slots);
    writes_.resize(slots);
    slots_.reserve(place_.copier, slots, chunk);
    if (addition_) local_slots_.reserve(place_.copier, slots, chunk);
    while (granted_ < std::min(slots, chunks_)) grant_next();
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
    transfers_[index] = place_.group.start_receive({chunk.data(), chunk.size(), DataType::u8},
                                                   peer_, handshake_.tags().data);
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
                                             peer_, handshake_.tags().reply);
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

}  // namespace

std::size_t proposed_chunk(const RelayConfig& config, std::size_t bytes) {
  return static_cast<std::size_t>(terms_of(config, bytes).chunk);
}

std::unique_ptr<RelayEnd> make_relay_sender(const RelayPlace& place, DeviceBytes values, RankId to,
                                            SlotMemory& slots) {
  return std::make_unique<RelaySender>(place, values, to, slots);
}

std::unique_ptr<RelayEnd> make_relay_receiver(const RelayPlace& place, DeviceBytes values,
                                              RankId from, SlotMemory& slots,
                                              SlotMemory& local_slots,
                                              std::optional<RelayAddition> addition) {
  return std::make_unique<RelayReceiver>(place, values, from, slots, local_slots, addition);
}

}  // namespace heteroperf
