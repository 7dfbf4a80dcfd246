#include "runners/comm/hybrid/device_pipeline.hpp"

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/message_tags.hpp"

namespace heteroperf {
namespace {

/// Steps that a segment needs from one cluster to the next: while it travels, the one after it
/// goes through the library.
constexpr std::size_t hop = 2;
/// Steps that a receive is posted before its message is due.
constexpr std::size_t ahead = 2;
/// Segments of sums that are on their way at once.
constexpr std::size_t sums_under_way = 2;

std::size_t longest(std::span<const VectorSegment> segments) {
  std::size_t longest = 0;
  for (const VectorSegment& one : segments) longest = std::max(longest, one.count);
  return longest;
}

DeviceBytes on_device(MutableBuffer values) {
  return {static_cast<std::byte*>(values.data), values.bytes()};
}

/// A relay under way and the step in which it is ended.
struct Due {
  std::size_t step, segment;
  std::unique_ptr<Transfer> transfer;
};

}  // namespace

std::byte* DeviceScratch::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    block_ = MemoryBlock();
    block_ = MemoryBlock(memory_, bytes);
    bytes_ = bytes;
  }
  return static_cast<std::byte*>(block_.data());
}

void DevicePipeline::sum(Reduction reduction, StagedBridge& bridge, std::size_t chunk,
                         DeviceScratch& scratch) {
  const Reduction inside_reduction = reduction == Reduction::average ? Reduction::sum : reduction;
  const std::size_t slot_bytes = longest(segments) * size_of(mine.type);
  std::vector<std::size_t> ends(segments.size());  ///< chunks of the bridge up to each segment
  const auto place_of = [&](std::size_t g) {
    if (role(g).keeps == SegmentRole::Keeps::result) return result_of(g);
    std::byte* const memory = scratch.reserve(sums_under_way * slot_bytes);
    return MutableBuffer(memory + g % sums_under_way * slot_bytes, segments[g].count, mine.type);
  };
  const auto up = [&](std::size_t g) {
    const BridgeRole& at_bridge = role(g).bridge;
    ConstBuffer part = mine_of(g);
    if (role(g).inside_up) {
      const MutableBuffer into =
          at_bridge.active() ? place_of(g) : MutableBuffer(nullptr, 0, mine.type);
      inside.reduce(part, into, *role(g).inside_up, inside_reduction);
      part = into;
    }
    if (at_bridge.active()) {
      const bool gets = !at_bridge.collector || *at_bridge.collector == at_bridge.self;
      bridge.add(at_bridge, part, gets ? place_of(g) : MutableBuffer(), segments[g].begin / chunk);
    }
    ends[g] = bridge.added();
  };
  const auto down = [&](std::size_t g) {
    const SegmentRole& part = role(g);
    if (part.inside_down) return inside.broadcast(result_of(g), *part.inside_down);
    if (part.source) return inside.receive(result_of(g), routes.inside_rank(*part.source));
    if (part.targets.empty()) return;
    inside.send(ConstBuffer(place_of(g)), routes.inside_rank(part.targets.front()));
  };
  for (std::size_t step = 0; step <= segments.size(); ++step) {
    if (step < segments.size()) up(step);
    if (step == 0) continue;
    bridge.finish(ends[step - 1]);
    down(step - 1);
  }
}

void DevicePipeline::copy(RelayMessages& messages, std::size_t clusters, BridgeTraffic& traffic) {
  const auto due = [&](std::size_t g) { return g + hop * routes.place_in_chain(root_of(g)); };
  std::vector<Due> sends, receives;
  const auto post_receives = [&](std::size_t step) {
    for (std::size_t place = clusters; place-- > 0;) {
      const std::size_t g = step - hop * place;
      if (step < hop * place || g >= segments.size() || due(g) != step || !role(g).source) continue;
      receives.push_back(
          {step, g,
           messages.start_receive(on_device(result_of(g)), *role(g).source, message_tags::down)});
    }
  };
  const auto end_what_is_due = [&](std::vector<Due>& relays, std::size_t step) {
    std::erase_if(relays, [&](const Due& one) {
      if (one.step > step) return false;
      one.transfer->wait();
      return true;
    });
  };
  const auto pass_on = [&](std::size_t g, std::size_t step) {
    const SegmentRole& part = role(g);
    const bool from_here = part.inside_down && *part.inside_down == inside.rank();
    if (part.inside_down && !from_here) inside.broadcast(result_of(g), *part.inside_down);
    for (std::size_t k = 0; k < part.crossing; ++k) {
      sends.push_back(
          {step + hop, g,
           messages.start_send(on_device(result_of(g)), part.targets[k], message_tags::down)});
      traffic.logical += Bytes(result_of(g).bytes());
      traffic.wire += Bytes(result_of(g).bytes());
    }
    if (from_here) inside.broadcast(result_of(g), *part.inside_down);
  };
  for (std::size_t step = 0; step < ahead; ++step) post_receives(step);
  const std::size_t steps = segments.size() + hop * clusters;
  for (std::size_t step = 0; step < steps; ++step) {
    post_receives(step + ahead);
    end_what_is_due(sends, step);
    end_what_is_due(receives, step);
    for (std::size_t place = clusters; place-- > 0;) {
      const std::size_t g = step - hop * place;
      if (step >= hop * place && g < segments.size() && due(g) == step) pass_on(g, step);
    }
  }
  HETEROPERF_EXPECT(sends.empty() && receives.empty());
}

}  // namespace heteroperf
