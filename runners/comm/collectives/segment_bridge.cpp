// The bridge between clusters in host memory.
//
// The segments of a role are numbered by *ordinals*; segment n uses slot n modulo the number of
// slots, for this cluster's contribution and for each of the others'. A slot may be used again when
// the sends from it have ended, which place() waits for, and when its contributions have been
// combined, which the caller's order of calls guarantees. Every ring of transfers has a place for
// every top, also where nothing is sent, so that transfer number ordinal · tops + top needs no
// bookkeeping.
#include "runners/comm/collectives/segment_bridge.hpp"

#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/slice.hpp"

namespace heteroperf {
namespace {

/// Part `top` of a segment that is scattered among the tops, equal up to a cache line.
Slice scattered_part(std::size_t count, std::size_t top, std::size_t tops) {
  return even_slice(count, top, tops, 16);
}

}  // namespace

BridgeScheme bridge_scheme(std::size_t clusters, WireFormat wire) {
  return clusters > 2 && wire == WireFormat::fp32 ? BridgeScheme::scatter : BridgeScheme::everybody;
}

ConstBuffer BridgeConfig::on_wire(const std::byte* data, std::size_t count) const {
  if (!encoded()) return {data, count, type};
  return {data, wire_bytes(wire, count), DataType::u8};
}

void BridgeConfig::add(std::span<const void* const> contributions, MutableBuffer result,
                       int ranks) const {
  if (encoded()) {
    const std::span values(static_cast<float*>(result.data), result.count);
    decode(wire, static_cast<const std::byte*>(contributions[0]), values);
    for (const void* contribution : contributions.subspan(1)) {
      decode_add(wire, static_cast<const std::byte*>(contribution), values);
    }
  } else {
    reduce_in_order(contributions, {&result.data, 1}, result.count, type, undivided(reduction));
  }
  heteroperf::finish(result, result, reduction, ranks);
}

SegmentBridge::SegmentBridge(Communicator& group, const BridgeConfig& config, Scratch& scratch,
                             BridgeTraffic& traffic)
    : group_(group),
      config_(config),
      traffic_(traffic),
      slots_(2 * config.in_flight + 2),
      slot_bytes_((config.segment * size_of(config.type) / cache_line_bytes + 1) *
                  cache_line_bytes),
      local_(scratch.slot(scratch_slots::bridge_local, slots_ * slot_bytes_)),
      arriving_(scratch.slot(scratch_slots::bridge_arriving, slots_ * config.tops * slot_bytes_)),
      raw_(config.encoded() ? scratch.slot(scratch_slots::bridge_raw, slot_bytes_) : nullptr),
      receives_(slots_ * config.tops),
      sends_(slots_ * config.tops),
      result_receives_(slots_ * config.tops),
      result_sends_(slots_ * config.tops) {}

template <class Start>
void SegmentBridge::push_for_tops(const BridgeRole& role, TransferRing& ring, Start start) {
  for (std::size_t top = 0; top < config_.tops; ++top) {
    const bool is_peer = top < role.tops.size() && top != role.self;
    ring.push(is_peer ? start(top) : nullptr);
  }
}

void SegmentBridge::expect(const BridgeRole& role, std::size_t count) {
  const std::size_t ordinal = expected_++;
  const std::size_t part =
      scatters(role) ? scattered_part(count, role.self, role.tops.size()).count : count;
  push_for_tops(role, receives_, [&](std::size_t top) -> std::unique_ptr<Transfer> {
    if (!role.gets_sum()) return nullptr;
    const ConstBuffer wire = config_.on_wire(nullptr, part);
    return receive_some(group_, {slot_from(ordinal, top), wire.count, wire.type}, role.tops[top],
                        message_tags::bridge);
  });
}

void* SegmentBridge::place() {
  if (contributed_ >= slots_) wait(sends_, contributed_ - slots_);
  return config_.encoded() ? raw_ : local_slot(contributed_);
}

std::unique_ptr<Transfer> SegmentBridge::send(ConstBuffer values, std::size_t logical_bytes,
                                              RankId to, int tag) {
  traffic_.add(logical_bytes, values.bytes());
  return send_some(group_, values, to, tag);
}

void SegmentBridge::contribute(const BridgeRole& role, std::size_t count) {
  std::byte* const local = local_slot(contributed_++);
  if (config_.encoded()) encode(config_.wire, {reinterpret_cast<float*>(raw_), count}, local);
  push_for_tops(role, sends_, [&](std::size_t top) -> std::unique_ptr<Transfer> {
    if (role.collector && *role.collector != top) return nullptr;
    Slice part{0, count};
    if (scatters(role)) part = scattered_part(count, top, role.tops.size());
    ConstBuffer values = config_.on_wire(local, count);
    if (!config_.encoded()) values = part_of(values, part);
    return send(values, part.count * size_of(config_.type), role.tops[top], message_tags::bridge);
  });
}

/// Leaves out the first `skipped` elements of this cluster's own contribution; the others' begin
/// where the sum does.
void SegmentBridge::sum(const BridgeRole& role, std::size_t ordinal, std::size_t skipped,
                        MutableBuffer result) {
  sources_.clear();
  for (std::size_t top = 0; top < role.tops.size(); ++top) {
    sources_.push_back(top == role.self ? local_slot(ordinal) + skipped * size_of(config_.type)
                                        : slot_from(ordinal, top));
  }
  config_.add(sources_, result, group_.size());
}

bool SegmentBridge::combine(const BridgeRole& role, MutableBuffer result) {
  const std::size_t ordinal = combined_++;
  if (!role.gets_sum()) return false;
  wait(receives_, ordinal);
  if (!scatters(role)) {
    sum(role, ordinal, 0, result);
    return true;
  }
  const auto part_for = [&](std::size_t top) {
    return part_of(result, scattered_part(result.count, top, role.tops.size()));
  };
  const MutableBuffer part = part_for(role.self);
  sum(role, ordinal, scattered_part(result.count, role.self, role.tops.size()).begin, part);
  push_for_tops(role, result_receives_, [&](std::size_t top) {
    return receive_some(group_, part_for(top), role.tops[top], message_tags::bridge_result);
  });
  push_for_tops(role, result_sends_, [&](std::size_t top) {
    return send(part, part.bytes(), role.tops[top], message_tags::bridge_result);
  });
  return true;
}

void SegmentBridge::collect(const BridgeRole& role) {
  if (scatters(role)) wait(result_receives_, collected_++);
}

void SegmentBridge::finish() {
  sends_.wait_all();
  result_sends_.wait_all();
}

}  // namespace heteroperf
