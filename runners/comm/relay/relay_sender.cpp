#include "runners/comm/relay/relay_sender.hpp"

namespace heteroperf {

RelaySender::RelaySender(const RelayPlace& place, DeviceBytes values, RankId to, SlotMemory& slots)
    : place_(place),
      values_(values),
      to_(to),
      slots_(slots),
      copier_(place.copier, place.config.timeout_s),
      handshake_(place.group, to, place.tags, terms_of(place.config, values.bytes),
                 Handshake::Side::sender) {}

void RelaySender::begin(const RelayTerms& terms) {
  terms_ = terms;
  chunks_ = terms.chunks();
  const auto own_slots = static_cast<std::size_t>(terms_of(place_.config, values_.bytes).slots);
  reads_.resize(own_slots);
  transfers_.resize(own_slots);
  slots_.reserve(place_.copier, own_slots, static_cast<std::size_t>(terms.chunk));
  granted_ = terms.slots;
  await_credit();
}

/// Every grant but the first comes as a message of its own.
void RelaySender::await_credit() {
  if (granted_ >= static_cast<std::int64_t>(chunks_)) return;
  credit_transfer_ =
      place_.group.start_receive(std::span<std::int64_t>(&credit_, 1), to_, place_.tags.reply);
}

bool RelaySender::take_credit() {
  if (!credit_transfer_ || !credit_transfer_->test()) return false;
  credit_transfer_.reset();
  granted_ = credit_;
  await_credit();
  return true;
}

bool RelaySender::read_next() {
  if (read_ == chunks_ || read_ - left_ == reads_.size()) return false;
  const std::size_t bytes = terms_->chunk_bytes(read_);
  reads_[read_ % reads_.size()] =
      copier_.start_read(values_.address + terms_->chunk_begin(read_), slots_.slot(read_, bytes));
  ++read_;
  return true;
}

bool RelaySender::send_next() {
  if (sent_ == read_ || static_cast<std::int64_t>(sent_) >= granted_) return false;
  const std::size_t slot = sent_ % reads_.size();
  if (!copier_.done(reads_[slot], "the copy to the host", sent_)) return false;
  const std::span<const std::byte> chunk = slots_.slot(sent_, terms_->chunk_bytes(sent_));
  transfers_[slot] =
      place_.group.start_send({chunk.data(), chunk.size(), DataType::u8}, to_, place_.tags.data);
  ++sent_;
  const auto released = granted_ - terms_->slots;
  most_under_way_ =
      std::max(most_under_way_, static_cast<int>(static_cast<std::int64_t>(sent_) - released));
  return true;
}

bool RelaySender::retire() {
  if (left_ == sent_) return false;
  auto& transfer = transfers_[left_ % transfers_.size()];
  if (!transfer->test()) return false;
  transfer.reset();
  ++left_;
  return true;
}

bool RelaySender::progress() {
  if (!terms_) {
    const auto terms = handshake_.agreed();
    if (terms) begin(*terms);
    return terms.has_value();
  }
  bool moved = take_credit();
  moved = retire() || moved;
  moved = read_next() || moved;
  return send_next() || moved;
}

RelayStatistics RelaySender::statistics() const {
  return {chunks_, Bytes(static_cast<std::uint64_t>(terms_->chunk)), Bytes(slots_.bytes()),
          most_under_way_, static_cast<int>(terms_->slots)};
}

}  // namespace heteroperf
