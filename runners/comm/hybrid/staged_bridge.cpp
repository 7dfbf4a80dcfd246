#include "runners/comm/hybrid/staged_bridge.hpp"

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/partial_sums.hpp"
#include "runners/comm/collectives/scratch.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

constexpr std::uint8_t credit = 1;

std::size_t in_lines(std::size_t bytes) {
  return (bytes + cache_line_bytes - 1) / cache_line_bytes * cache_line_bytes;
}

std::span<float> floats(std::byte* data, std::size_t count) {
  return {reinterpret_cast<float*>(data), count};
}

bool all_ended(std::vector<std::unique_ptr<Transfer>>& transfers) {
  return std::ranges::all_of(transfers, [](const auto& transfer) { return transfer->test(); });
}

DeviceBytes device_bytes_to(MutableBuffer values) {
  return {static_cast<std::byte*>(values.data), values.bytes()};
}

}  // namespace

StagedBridge::StagedBridge(const RelayPlace& place, const StagedBridgeConfig& config,
                           SlotMemory& slots, BridgeTraffic& traffic)
    : place_(place),
      config_(config),
      slots_(slots),
      traffic_(traffic),
      copier_(place.copier, place.config.timeout_s),
      raw_bytes_(in_lines(config.chunk * size_of(config.type))),
      wire_bytes_(encoded() ? in_lines(heteroperf::wire_bytes(config.wire, config.chunk))
                            : raw_bytes_),
      ring_(static_cast<std::size_t>(place.config.slots)) {
  const std::size_t own = raw_bytes_ + (encoded() ? wire_bytes_ : 0);
  slots_.reserve(place_.copier, ring_.size(), own + (config.tops - 1) * wire_bytes_);
}

/// Where the contribution of `top` arrives, which is not this one.
std::byte* StagedBridge::from_top(std::size_t index, std::size_t top) const {
  const std::size_t self = ring_[index % ring_.size()].work.role->self;
  return own(index) + (1 + top - (top > self ? 1 : 0)) * wire_bytes_;
}

/// What is on its way to others stays as it is.
std::byte* StagedBridge::sum_place(std::size_t index) const {
  return encoded() ? raw(index) : own(index) + wire_bytes_;
}

ConstBuffer StagedBridge::on_wire(const std::byte* data, std::size_t count) const {
  if (!encoded()) return {data, count, config_.type};
  return {data, heteroperf::wire_bytes(config_.wire, count), DataType::u8};
}

template <class Visit>
void StagedBridge::each_other_top(const Work& work, Visit visit) const {
  for (std::size_t top = 0; top < work.role->tops.size(); ++top) {
    if (top != work.role->self) visit(top);
  }
}

void StagedBridge::add(const BridgeRole& role, ConstBuffer from, MutableBuffer to,
                       std::size_t first) {
  HETEROPERF_EXPECT(role.active() && from.type == config_.type);
  for (std::size_t begin = 0, k = first; begin < from.count; begin += config_.chunk, ++k) {
    const std::size_t count = std::min(config_.chunk, from.count - begin);
    Work work{&role, from.part(begin, count), to, role.collector};
    if (to.count > 0) work.to = to.part(begin, count);
    if (!role.collector && config_.scheme == BridgeScheme::scatter) {
      work.collector = k % role.tops.size();
    }
    waiting_.push_back(work);
  }
}

void StagedBridge::finish(std::size_t chunks) {
  HETEROPERF_EXPECT(chunks <= added());
  for (Idle idle; freed_ < chunks;) {
    if (progress()) {
      idle.reset();
    } else {
      idle.pause();
    }
  }
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
  Chunk& now = chunk(index);
  now = {};
  now.work = waiting_.front();
  waiting_.pop_front();
  post_receives(index);
  now.read = copier_.start_read(static_cast<const std::byte*>(now.work.from.data),
                                {raw(index), now.work.from.bytes()});
  now.reads = true;
  return true;
}

/// Contributions and sums come in the order of chunks, each stream with a tag of its own.
void StagedBridge::post_receives(std::size_t index) {
  Chunk& now = chunk(index);
  const Work& work = now.work;
  const auto receive = [&](std::byte* into, ConstBuffer shape, std::size_t top, int tag) {
    return place_.group.start_receive({into, shape.count, shape.type}, work.role->tops[top], tag);
  };
  const ConstBuffer wire = on_wire(nullptr, work.from.count);
  if (work.collects()) {
    each_other_top(work, [&](std::size_t top) {
      now.incoming.push_back(receive(from_top(index, top), wire, top, message_tags::staged));
      if (work.everybody() || work.handed_out()) return;
      now.outgoing.push_back(place_.group.start_send(std::span<const std::uint8_t>(&credit, 1),
                                                     work.role->tops[top],
                                                     message_tags::staged_credit));
    });
  } else if (work.handed_out()) {
    now.incoming.push_back(
        receive(sum_place(index), work.from, *work.collector, message_tags::staged_sum));
  } else {
    now.credits.push_back(receive(sum_place(index), {nullptr, 1, DataType::u8}, *work.collector,
                                  message_tags::staged_credit));
  }
}

void StagedBridge::send(std::size_t index, ConstBuffer values, std::size_t top, int tag) {
  Chunk& now = chunk(index);
  now.outgoing.push_back(place_.group.start_send(values, now.work.role->tops[top], tag));
  traffic_.logical += Bytes(now.work.from.bytes());
  traffic_.wire += Bytes(values.bytes());
}

bool StagedBridge::send_next() {
  if (sent_ == started_) return false;
  Chunk& now = chunk(sent_);
  const std::size_t count = now.work.from.count;
  bool moved = false;
  if (now.reads) {
    if (!copier_.done(now.read, "the copy to the host", sent_)) return false;
    now.reads = false;
    if (encoded()) encode(config_.wire, floats(raw(sent_), count), own(sent_));
    moved = true;
  }
  if (!all_ended(now.credits)) return moved;
  const ConstBuffer values = on_wire(own(sent_), count);
  if (now.work.everybody()) {
    each_other_top(now.work,
                   [&](std::size_t top) { send(sent_, values, top, message_tags::staged); });
  } else if (!now.work.collects()) {
    send(sent_, values, *now.work.collector, message_tags::staged);
  }
  ++sent_;
  return true;
}

bool StagedBridge::combine_next() {
  if (combined_ == sent_) return false;
  Chunk& now = chunk(combined_);
  if (!all_ended(now.incoming)) return false;
  if (now.work.collects()) {
    sum(combined_);
    if (now.work.handed_out()) {
      each_other_top(now.work, [&](std::size_t top) {
        send(combined_, {sum_place(combined_), now.work.from.count, config_.type}, top,
             message_tags::staged_sum);
      });
    }
  }
  if (now.work.to.count > 0) {
    const DeviceBytes to = device_bytes_to(now.work.to);
    now.write = copier_.start_write({sum_place(combined_), to.bytes}, to.address);
    now.writes = true;
  }
  ++combined_;
  return true;
}

/// With an encoded wire the own contribution is summed as the others see it, so that all tops get
/// the same bits.
void StagedBridge::sum(std::size_t index) {
  const Work& work = chunk(index).work;
  const auto source = [&](std::size_t top) {
    return top == work.role->self ? own(index) : from_top(index, top);
  };
  const std::size_t count = work.from.count, tops = work.role->tops.size();
  const MutableBuffer result(sum_place(index), count, config_.type);
  if (encoded()) {
    const auto values = floats(sum_place(index), count);
    decode(config_.wire, source(0), values);
    for (std::size_t top = 1; top < tops; ++top) decode_add(config_.wire, source(top), values);
  } else {
    sources_.clear();
    for (std::size_t top = 0; top < tops; ++top) sources_.push_back(source(top));
    void* const into = result.data;
    const bool averages = config_.reduction == Reduction::average;
    reduce_in_order(sources_, {&into, 1}, count, config_.type,
                    averages ? Reduction::sum : config_.reduction);
  }
  heteroperf::finish(result, result, config_.reduction, place_.group.size());
}

bool StagedBridge::free_oldest() {
  if (freed_ == combined_) return false;
  Chunk& now = chunk(freed_);
  if (now.writes) {
    if (!copier_.done(now.write, "the copy to the device", freed_)) return false;
    now.writes = false;
  }
  if (!all_ended(now.outgoing)) return false;
  now.outgoing.clear();
  ++freed_;
  return true;
}

}  // namespace heteroperf
