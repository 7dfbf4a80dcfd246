#include "runners/comm/relay/relay_receiver.hpp"

#include <algorithm>

#include "runners/comm/element_types.hpp"

namespace heteroperf {

RelayReceiver::RelayReceiver(const RelayPlace& place, DeviceBytes values, RankId from,
                             SlotMemory& slots, SlotMemory& own_slots,
                             std::optional<RelayAddition> addition)
    : place_(place),
      values_(values),
      from_(from),
      slots_(slots),
      own_slots_(own_slots),
      addition_(addition),
      copier_(place.copier, place.config.timeout_s),
      handshake_(place.group, from, place.tags, terms_of(place.config, values.bytes),
                 Handshake::Side::receiver) {}

void RelayReceiver::begin(const RelayTerms& terms) {
  terms_ = terms;
  chunks_ = terms.chunks();
  const auto slots = static_cast<std::size_t>(terms.slots);
  const auto chunk = static_cast<std::size_t>(terms.chunk);
  transfers_.resize(slots);
  reads_.resize(slots);
  writes_.resize(slots);
  slots_.reserve(place_.copier, slots, chunk);
  if (addition_) own_slots_.reserve(place_.copier, slots, chunk);
  while (granted_ < std::min(slots, chunks_)) grant_next();
}

/// Makes the slot of the next chunk ready.
void RelayReceiver::grant_next() {
  const std::size_t slot = granted_ % transfers_.size();
  const std::span<std::byte> chunk = slots_.slot(granted_, terms_->chunk_bytes(granted_));
  transfers_[slot] = place_.group.start_receive({chunk.data(), chunk.size(), DataType::u8}, from_,
                                                handshake_.tags().data);
  if (addition_) {
    reads_[slot] = copier_.start_read(values_.address + terms_->chunk_begin(granted_),
                                      own_slots_.slot(granted_, chunk.size()));
  }
  ++granted_;
}

bool RelayReceiver::take_arrival() {
  if (arrived_ == granted_) return false;
  const std::size_t slot = arrived_ % transfers_.size();
  if (transfers_[slot]) {
    if (!transfers_[slot]->test()) return false;
    transfers_[slot].reset();
  }
  const std::size_t bytes = terms_->chunk_bytes(arrived_);
  if (addition_) {
    if (!copier_.done(reads_[slot], "the copy to the host", arrived_)) return false;
    add(arrived_);
  }
  writes_[slot] = copier_.start_write(slots_.slot(arrived_, bytes),
                                      values_.address + terms_->chunk_begin(arrived_));
  ++arrived_;
  return true;
}

void RelayReceiver::add(std::size_t chunk) {
  const std::size_t bytes = terms_->chunk_bytes(chunk);
  void* const arrived = slots_.slot(chunk, bytes).data();
  const void* const sources[] = {own_slots_.slot(chunk, bytes).data(), arrived};
  reduce_in_order(sources, {&arrived, 1}, bytes / size_of(addition_->type), addition_->type,
                  addition_->reduction);
}

/// A slot that is free again is granted for the chunk that comes into it next.
bool RelayReceiver::retire() {
  if (written_ == arrived_) return false;
  if (!copier_.done(writes_[written_ % writes_.size()], "the copy to the device", written_)) {
    return false;
  }
  ++written_;
  if (granted_ == chunks_) return true;
  grant_next();
  auto credit = std::make_unique<Credit>();
  credit->granted = static_cast<std::int64_t>(granted_);
  credit->transfer = place_.group.start_send(std::span<const std::int64_t>(&credit->granted, 1),
                                             from_, handshake_.tags().reply);
  credits_.push_back(std::move(credit));
  return true;
}

bool RelayReceiver::forget_credits() {
  if (credits_.empty() || !credits_.front()->transfer->test()) return false;
  credits_.erase(credits_.begin());
  return true;
}

bool RelayReceiver::progress() {
  if (!terms_) {
    const auto terms = handshake_.agreed();
    if (terms) begin(*terms);
    return terms.has_value();
  }
  bool moved = retire();
  moved = take_arrival() || moved;
  return forget_credits() || moved;
}

RelayStatistics RelayReceiver::statistics() const {
  return {chunks_, Bytes(static_cast<std::uint64_t>(terms_->chunk)),
          Bytes(slots_.bytes() + own_slots_.bytes()), 0, static_cast<int>(terms_->slots)};
}

}  // namespace heteroperf
