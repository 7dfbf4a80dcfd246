// The bridge between clusters of devices.
//
// Each chunk passes four points in order, and a counter says how many chunks have passed each of
// them: *started* (its slot is taken, its copy to the host runs, its receives are posted), *sent*
// (the copy has ended and the contribution is under way), *combined* (all contributions are here,
// the sum is made and on its way to the device), *freed* (nothing uses the slot any more).
// progress() moves the oldest chunk at each point one point further if that is possible without
// waiting.
#include "runners/comm/hybrid/device_pipeline.hpp"

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/message_tags.hpp"

namespace heteroperf {
namespace {

constexpr std::uint8_t credit = 1;

std::size_t in_lines(std::size_t bytes) {
  return (bytes + cache_line_bytes - 1) / cache_line_bytes * cache_line_bytes;
}

bool all_ended(std::vector<std::unique_ptr<Transfer>>& transfers) {
  return std::ranges::all_of(transfers, [](const auto& transfer) { return transfer->test(); });
}

/// Calls visit(top) for every other top of a role.
template <class Visit>
void each_peer(const BridgeRole& role, Visit visit) {
  for (std::size_t top = 0; top < role.tops.size(); ++top) {
    if (top != role.self) visit(top);
  }
}

}  // namespace

StagedBridge::StagedBridge(Communicator& group, DeviceCopier& copier, const RelayConfig& relay,
                           const BridgeConfig& config, SlotMemory& slots, BridgeTraffic& traffic)
    : group_(group),
      config_(config),
      slots_(slots),
      traffic_(traffic),
      copier_(copier, relay.timeout_s),
      raw_bytes_(in_lines(config.segment * size_of(config.type))),
      wire_bytes_(in_lines(config.on_wire(nullptr, config.segment).bytes())),
      ring_(relay.slots) {
  const std::size_t encoding = config.encoded() ? wire_bytes_ : 0;
  slots_.reserve(copier, ring_.size(), raw_bytes_ + encoding + (config.tops - 1) * wire_bytes_);
}

/// The place for the contribution of another top.
std::byte* StagedBridge::from_top(std::size_t index, std::size_t top) const {
  const std::size_t self = ring_[index % ring_.size()].work.role->self;
  return local(index) + (1 + top - (top > self ? 1 : 0)) * wire_bytes_;
}

void StagedBridge::add(const BridgeRole& role, ConstBuffer from, MutableBuffer to,
                       std::size_t first) {
  HETEROPERF_EXPECT(role.active() && from.type == config_.type);
  for (std::size_t begin = 0, k = first; begin < from.count; begin += config_.segment, ++k) {
    const std::size_t count = std::min(config_.segment, from.count - begin);
    Work work{&role, from.part(begin, count), to, role.collector};
    if (to.count > 0) work.to = to.part(begin, count);
    if (!role.collector && config_.scheme == BridgeScheme::scatter) {
      work.collector = k % role.tops.size();
    }
    waiting_.push_back(work);
  }
}

/// Any progress of any chunk may let the awaited ones go on, so all of them are driven.
void StagedBridge::finish(std::size_t chunks) {
  HETEROPERF_EXPECT(chunks <= added());
  for (Idle idle; freed_ < chunks;) idle.after(progress());
}

bool StagedBridge::progress() {
  bool moved = free_oldest();
  moved = start_next() || moved;
  moved = send_next() || moved;
  return combine_next() || moved;
}

bool StagedBridge::start_next() {
  if (waiting_.empty() || started_ - freed_ == ring_.size()) return false;
  const std::size_t index = started_++;
  Chunk& next = chunk(index);
  next = {};
  next.work = waiting_.front();
  waiting_.pop_front();
  post_receives(index);
  next.read = copier_.start_read(static_cast<const std::byte*>(next.work.from.data),
                                 {raw(index), next.work.from.bytes()});
  next.reads = true;
  return true;
}

/// Contributions, sums and credits come in the order of chunks, each stream with a tag of its own.
void StagedBridge::post_receives(std::size_t index) {
  Chunk& next = chunk(index);
  const Work& work = next.work;
  const auto receive = [&](std::byte* into, ConstBuffer shape, std::size_t top, int tag) {
    return group_.start_receive({into, shape.count, shape.type}, work.role->tops[top], tag);
  };
  if (work.collects()) {
    const ConstBuffer wire = config_.on_wire(nullptr, work.from.count);
    each_peer(*work.role, [&](std::size_t top) {
      next.incoming.push_back(receive(from_top(index, top), wire, top, message_tags::staged));
      if (work.everybody() || work.handed_out()) return;
      next.outgoing.push_back(group_.start_send(std::span<const std::uint8_t>(&credit, 1),
                                                work.role->tops[top], message_tags::staged_credit));
    });
  } else if (work.handed_out()) {
    next.incoming.push_back(
        receive(sum_place(index), work.from, *work.collector, message_tags::staged_sum));
  } else {
    next.credits.push_back(receive(sum_place(index), {nullptr, 1, DataType::u8}, *work.collector,
                                   message_tags::staged_credit));
  }
}

void StagedBridge::send(std::size_t index, ConstBuffer values, std::size_t top, int tag) {
  const Work& work = chunk(index).work;
  chunk(index).outgoing.push_back(group_.start_send(values, work.role->tops[top], tag));
  traffic_.add(work.from.bytes(), values.bytes());
}

bool StagedBridge::send_next() {
  if (sent_ == started_) return false;
  Chunk& next = chunk(sent_);
  const std::size_t count = next.work.from.count;
  bool moved = false;
  if (next.reads) {
    if (!copier_.done(next.read, "the copy to the host", sent_)) return false;
    next.reads = false;
    if (config_.encoded()) {
      encode(config_.wire, {reinterpret_cast<float*>(raw(sent_)), count}, local(sent_));
    }
    moved = true;
  }
  if (!all_ended(next.credits)) return moved;
  const ConstBuffer values = config_.on_wire(local(sent_), count);
  if (next.work.everybody()) {
    each_peer(*next.work.role,
              [&](std::size_t top) { send(sent_, values, top, message_tags::staged); });
  } else if (!next.work.collects()) {
    send(sent_, values, *next.work.collector, message_tags::staged);
  }
  ++sent_;
  return true;
}

bool StagedBridge::combine_next() {
  if (combined_ == sent_) return false;
  Chunk& next = chunk(combined_);
  if (!all_ended(next.incoming)) return false;
  if (next.work.collects()) {
    sum(combined_);
    if (next.work.handed_out()) {
      const ConstBuffer sum(sum_place(combined_), next.work.from.count, config_.type);
      each_peer(*next.work.role,
                [&](std::size_t top) { send(combined_, sum, top, message_tags::staged_sum); });
    }
  }
  if (next.work.to.count > 0) {
    const DeviceBytes to = device_bytes(next.work.to);
    next.write = copier_.start_write({sum_place(combined_), to.bytes}, to.address);
    next.writes = true;
  }
  ++combined_;
  return true;
}

void StagedBridge::sum(std::size_t index) {
  const Work& work = chunk(index).work;
  sources_.clear();
  for (std::size_t top = 0; top < work.role->tops.size(); ++top) {
    sources_.push_back(top == work.role->self ? local(index) : from_top(index, top));
  }
  config_.add(sources_, {sum_place(index), work.from.count, config_.type}, group_.size());
}

bool StagedBridge::free_oldest() {
  if (freed_ == combined_) return false;
  Chunk& oldest = chunk(freed_);
  if (oldest.writes) {
    if (!copier_.done(oldest.write, "the copy to the device", freed_)) return false;
    oldest.writes = false;
  }
  if (!all_ended(oldest.outgoing)) return false;
  oldest.outgoing.clear();
  ++freed_;
  return true;
}

}  // namespace heteroperf
