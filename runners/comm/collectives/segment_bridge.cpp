#include "runners/comm/collectives/segment_bridge.hpp"

#include <algorithm>
#include <cstring>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/flat_algorithms.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/scratch.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

Reduction without_division(Reduction reduction) {
  return reduction == Reduction::average ? Reduction::sum : reduction;
}

std::span<float> floats(void* data, std::size_t count) {
  return {static_cast<float*>(data), count};
}

}  // namespace

BridgeScheme bridge_scheme(std::size_t clusters, WireFormat wire) {
  return clusters > 2 && wire == WireFormat::fp32 ? BridgeScheme::scatter : BridgeScheme::everybody;
}

SegmentBridge::SegmentBridge(Communicator& group, const BridgeConfig& config, Scratch& scratch,
                             BridgeTraffic& traffic)
    : group_(group),
      config_(config),
      traffic_(traffic),
      slots_(2 * config.in_flight + 2),
      slot_bytes_((config.segment * size_of(config.type) / cache_line_bytes + 1) *
                  cache_line_bytes),
      own_(scratch.slot(scratch_slots::bridge_own, slots_ * slot_bytes_)),
      arriving_(scratch.slot(scratch_slots::bridge_arriving, slots_ * config.tops * slot_bytes_)),
      raw_(encoded() ? scratch.slot(scratch_slots::bridge_raw, slot_bytes_) : nullptr),
      receives_(slots_ * config.tops),
      sends_(slots_ * config.tops),
      result_receives_(slots_ * config.tops),
      result_sends_(slots_ * config.tops) {}

std::byte* SegmentBridge::own_slot(std::size_t ordinal) const {
  return own_ + ordinal % slots_ * slot_bytes_;
}

std::byte* SegmentBridge::slot_from(std::size_t ordinal, std::size_t top) const {
  return arriving_ + (ordinal % slots_ * config_.tops + top) * slot_bytes_;
}

ConstBuffer SegmentBridge::on_wire(const std::byte* data, std::size_t count) const {
  if (!encoded()) return {data, count, config_.type};
  return {data, wire_bytes(config_.wire, count), DataType::u8};
}

void SegmentBridge::expect(const BridgeRole& role, std::size_t count) {
  const std::size_t ordinal = expected_++;
  const std::size_t n = scatters(role) ? block_of(count, role.self, role.tops.size()).count : count;
  for (std::size_t top = 0; top < config_.tops; ++top) {
    const bool sends = receives(role) && top < role.tops.size() && top != role.self;
    const ConstBuffer wire = on_wire(nullptr, n);
    receives_.push(
        sends ? receive_some(group_, MutableBuffer(slot_from(ordinal, top), wire.count, wire.type),
                             role.tops[top], message_tags::bridge)
              : nullptr);
  }
}

void* SegmentBridge::place() {
  const std::size_t ordinal = contributed_;
  if (ordinal >= slots_) {
    for (std::size_t top = 0; top < config_.tops; ++top) {
      sends_.wait((ordinal - slots_) * config_.tops + top);
    }
  }
  return encoded() ? raw_ : own_slot(ordinal);
}

void SegmentBridge::send(ConstBuffer values, std::size_t logical_bytes, RankId to, int tag,
                         TransferRing& ring) {
  ring.push(send_some(group_, values, to, tag));
  traffic_.logical += Bytes(logical_bytes);
  traffic_.wire += Bytes(values.bytes());
}

void SegmentBridge::contribute(const BridgeRole& role, std::size_t count) {
  std::byte* const own = own_slot(contributed_);
  if (encoded()) encode(config_.wire, floats(raw_, count), own);
  ++contributed_;
  for (std::size_t top = 0; top < config_.tops; ++top) {
    const bool gets =
        top < role.tops.size() && top != role.self && (!role.collector || *role.collector == top);
    if (!gets) {
      sends_.push(nullptr);
      continue;
    }
    const Slice part = scatters(role) ? block_of(count, top, role.tops.size()) : Slice{0, count};
    const ConstBuffer values =
        encoded() ? on_wire(own, count) : on_wire(own, count).part(part.begin, part.count);
    send(values, part.count * size_of(config_.type), role.tops[top], message_tags::bridge, sends_);
  }
}

/// `skip`: elements of this rank's own contribution before those that are summed.
void SegmentBridge::sum(const BridgeRole& role, std::size_t ordinal, std::size_t skip,
                        MutableBuffer result) {
  const auto slot = [&](std::size_t top) -> const std::byte* {
    if (top != role.self) return slot_from(ordinal, top);
    return own_slot(ordinal) + skip * (encoded() ? 0 : size_of(config_.type));
  };
  if (encoded()) {
    const auto values = floats(result.data, result.count);
    decode(config_.wire, slot(0), values);
    for (std::size_t top = 1; top < role.tops.size(); ++top) {
      decode_add(config_.wire, slot(top), values);
    }
    return;
  }
  sources_.clear();
  for (std::size_t top = 0; top < role.tops.size(); ++top) sources_.push_back(slot(top));
  reduce_in_order(sources_, {&result.data, 1}, result.count, config_.type,
                  without_division(config_.reduction));
}

bool SegmentBridge::combine(const BridgeRole& role, MutableBuffer result) {
  const std::size_t ordinal = combined_++;
  if (!receives(role)) return false;
  for (std::size_t top = 0; top < config_.tops; ++top) {
    receives_.wait(ordinal * config_.tops + top);
  }
  if (!scatters(role)) {
    sum(role, ordinal, 0, result);
    heteroperf::finish(result, result, config_.reduction, group_.size());
    return true;
  }
  const std::size_t tops = role.tops.size();
  const Slice own = block_of(result.count, role.self, tops);
  const MutableBuffer part = result.part(own.begin, own.count);
  sum(role, ordinal, own.begin, part);
  heteroperf::finish(part, part, config_.reduction, group_.size());
  for (std::size_t top = 0; top < config_.tops; ++top) {
    const bool other = top < tops && top != role.self;
    const Slice theirs = other ? block_of(result.count, top, tops) : Slice{};
    result_receives_.push(other ? receive_some(group_, result.part(theirs.begin, theirs.count),
                                               role.tops[top], message_tags::bridge_result)
                                : nullptr);
  }
  for (std::size_t top = 0; top < config_.tops; ++top) {
    if (top < tops && top != role.self) {
      send(part, part.bytes(), role.tops[top], message_tags::bridge_result, result_sends_);
    } else {
      result_sends_.push(nullptr);
    }
  }
  return true;
}

void SegmentBridge::collect(const BridgeRole& role) {
  if (!scatters(role)) return;
  const std::size_t ordinal = collected_++;
  for (std::size_t top = 0; top < config_.tops; ++top) {
    result_receives_.wait(ordinal * config_.tops + top);
  }
}

void SegmentBridge::finish() {
  sends_.wait_all();
  result_sends_.wait_all();
}

}  // namespace heteroperf
