// Collectives over several clusters of devices. Their segments are large, as each is one call of
// the native library inside a cluster; between clusters a segment travels in chunks, through the
// memory of the hosts.
//
// All ranks take the same steps in the same order. In each step a rank first ends everything that
// is due between clusters, then calls the library. While the library works on a segment, those
// before it are under way between clusters. When a rank enters the library, no other rank waits for
// anything else that it owes; so no circle of ranks can wait for each other, although nothing
// travels from a rank that waits inside the library.
#include "runners/comm/hybrid/device_pipeline.hpp"

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/message_tags.hpp"

namespace heteroperf {
namespace {

/// A segment needs this many steps from one cluster to the next: while it travels, the one after it
/// goes through the library.
constexpr std::size_t hop = 2;
/// A receive is posted this many steps before its message is due.
constexpr std::size_t ahead = 2;
/// Sums of this many segments are under way at once.
constexpr std::size_t sums_under_way = 2;

/// A relay under way and the step in which it is ended.
struct DueRelay {
  std::size_t step;
  std::unique_ptr<Transfer> transfer;
};

void end_due(std::vector<DueRelay>& relays, std::size_t step) {
  std::erase_if(relays, [&](const DueRelay& relay) {
    if (relay.step > step) return false;
    relay.transfer->wait();
    return true;
  });
}

}  // namespace

std::byte* DeviceScratch::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    block_ = MemoryBlock();
    block_ = MemoryBlock(memory_, bytes);
    bytes_ = bytes;
  }
  return static_cast<std::byte*>(block_.data());
}

void sum_over_devices(const DeviceClusters& clusters, const BridgedSum& call, StagedBridge& bridge,
                      std::size_t chunk, DeviceScratch& scratch) {
  Communicator& inside = clusters.inside;
  const auto& segments = call.cut.segments;
  const DataType type = call.input.type;
  std::size_t longest = 0;
  for (const VectorSegment& segment : segments) longest = std::max(longest, segment.count);
  const std::size_t slot_bytes = longest * size_of(type);
  std::vector<std::size_t> ends(segments.size());  // chunks of the bridge up to each segment
  const auto role = [&](std::size_t g) -> const SegmentRole& {
    return call.cut.plan.roles[segments[g].role];
  };
  const auto result_of = [&](std::size_t g) {
    return call.result.part(segments[g].result_begin, segments[g].count);
  };
  const auto place_of = [&](std::size_t g) {
    if (role(g).keeps_result) return result_of(g);
    std::byte* const memory = scratch.reserve(sums_under_way * slot_bytes);
    return MutableBuffer(memory + g % sums_under_way * slot_bytes, segments[g].count, type);
  };
  const auto up = [&](std::size_t g) {
    const BridgeRole& at_bridge = role(g).bridge;
    ConstBuffer contribution = call.input.part(segments[g].begin, segments[g].count);
    if (role(g).inside_up) {
      const MutableBuffer into = at_bridge.active() ? place_of(g) : MutableBuffer(nullptr, 0, type);
      inside.reduce(contribution, into, *role(g).inside_up, undivided(call.reduction));
      contribution = into;
    }
    if (at_bridge.active()) {
      bridge.add(at_bridge, contribution, at_bridge.gets_sum() ? place_of(g) : MutableBuffer(),
                 segments[g].begin / chunk);
    }
    ends[g] = bridge.added();
  };
  const auto down = [&](std::size_t g) {
    const SegmentRole& part = role(g);
    const auto peer = [&](RankId rank) { return clusters.plans.inside_rank(rank); };
    if (part.inside_down) return inside.broadcast(result_of(g), *part.inside_down);
    if (part.source) return inside.receive(result_of(g), peer(*part.source));
    if (!part.targets.empty()) inside.send(place_of(g), peer(part.targets.front()));
  };
  for (std::size_t step = 0; step <= segments.size(); ++step) {
    if (step < segments.size()) up(step);
    if (step == 0) continue;
    bridge.finish(ends[step - 1]);
    down(step - 1);
  }
}

void copy_over_devices(const DeviceClusters& clusters, const CutVector& cut, MutableBuffer result,
                       RelayMessages& messages, std::size_t count, BridgeTraffic& traffic) {
  Communicator& inside = clusters.inside;
  const auto role = [&](std::size_t g) -> const SegmentRole& {
    return cut.plan.roles[cut.segments[g].role];
  };
  const auto result_of = [&](std::size_t g) {
    return result.part(cut.segments[g].result_begin, cut.segments[g].count);
  };
  // Calls visit(g) for the segments that are due in this rank's cluster in a step.
  const auto each_due = [&](std::size_t step, auto visit) {
    for (std::size_t place = count; place-- > 0;) {
      if (step < hop * place || step - hop * place >= cut.segments.size()) continue;
      const std::size_t g = step - hop * place;
      const RankId root = cut.plan.root(cut.segments[g].role);
      if (clusters.plans.place_in_chain(root) == place) visit(g);
    }
  };
  std::vector<DueRelay> sends, receives;
  const auto post_receives = [&](std::size_t step) {
    each_due(step, [&](std::size_t g) {
      if (!role(g).source) return;
      receives.push_back({step, messages.start_receive(device_bytes(result_of(g)), *role(g).source,
                                                       message_tags::down)});
    });
  };
  const auto pass_on = [&](std::size_t g, std::size_t step) {
    const SegmentRole& part = role(g);
    const MutableBuffer values = result_of(g);
    const bool from_here = part.inside_down && *part.inside_down == inside.rank();
    if (part.inside_down && !from_here) inside.broadcast(values, *part.inside_down);
    for (std::size_t k = 0; k < part.crossing; ++k) {
      sends.push_back({step + hop, messages.start_send(device_bytes(values), part.targets[k],
                                                       message_tags::down)});
      traffic.add(values.bytes(), values.bytes());
    }
    if (from_here) inside.broadcast(values, *part.inside_down);
  };
  for (std::size_t step = 0; step < ahead; ++step) post_receives(step);
  const std::size_t steps = cut.segments.size() + hop * count;
  for (std::size_t step = 0; step < steps; ++step) {
    post_receives(step + ahead);
    end_due(sends, step);
    end_due(receives, step);
    each_due(step, [&](std::size_t g) { pass_on(g, step); });
  }
  HETEROPERF_EXPECT(sends.empty() && receives.empty());
}

}  // namespace heteroperf
