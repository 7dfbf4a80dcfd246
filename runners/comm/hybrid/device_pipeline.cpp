// Collectives over several clusters of devices. Their segments are large, as each is one call of
// the native library inside a cluster; between clusters a segment travels in chunks, through the
// memory of the hosts.
//
// All ranks take the same steps in the same order. In each step a rank first ends everything that
// is due between clusters, then calls the library. While the library works on a segment, those
// before it are under way between clusters. When a rank enters the library, no other rank waits for
// anything else that it owes; so no circle of ranks can wait for each other, although nothing
// travels from a rank that waits inside the library.
//
// The bridge carries chunks. Each chunk passes four points in order, and a counter says how many
// chunks have passed each of them: *started* (its slot is taken, its copy to the host runs, its
// receives are posted), *sent* (the copy has ended and the contribution is under way), *combined*
// (all contributions are here, the sum is made and on its way to the device), *freed* (nothing uses
// the slot any more). progress() moves the oldest chunk at each point one point further if that is
// possible without waiting.
#include "runners/comm/hybrid/device_pipeline.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

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

/// One top's end of the bridge between clusters of devices, over staging slots of the host's
/// memory. Segments travel in chunks, and chunks go through the stages at once: while one is copied
/// to the host, those before it travel, and those before them are summed and copied back.
///
/// A chunk has a slot from the start of its first copy until its result is on the device and
/// everything that was sent for it has left. All tops take their chunks in the same order, so a top
/// is never more than `slots` chunks ahead of one that answers it; where nothing comes back (a
/// collector keeps the sum) a credit for each chunk tells that its slot is ready. Sums are made on
/// the host and have the bits that SegmentBridge gives them; with `scatter` the tops take turns in
/// collecting whole chunks.
class StagedBridge {
 public:
  /// `relay` says slots and deadline; `config.segment` is the elements of the largest chunk.
  /// `slots` outlives this object.
  StagedBridge(Communicator& group, DeviceCopier& copier, const RelayConfig& relay,
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

  /// Begins the sum of `from`, this cluster's contribution, into `to`, which is empty where this
  /// rank gets no sum. Both are on the device; `role` outlives the call. `first` numbers the first
  /// chunk and is the same on all tops.
  void add(const BridgeRole& role, ConstBuffer from, MutableBuffer to, std::size_t first) {
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
  /// The number of chunks added so far.
  std::size_t added() const { return started_ + waiting_.size(); }
  /// Waits until the first `chunks` of them are done. Throws SystemError{timeout} when a copy does
  /// not end, and what the waits of the group throw.
  /// Any progress of any chunk may let the awaited ones go on, so all of them are driven.
  void finish(std::size_t chunks) {
    HETEROPERF_EXPECT(chunks <= added());
    for (Idle idle; freed_ < chunks;) idle.after(progress());
  }

 private:
  /// The chunk that is to be summed.
  struct Work {
    const BridgeRole* role = nullptr;
    ConstBuffer from;
    MutableBuffer to;
    std::optional<std::size_t> collector;  ///< sums this chunk; none: every top does

    bool everybody() const { return !collector; }
    bool collects() const { return !collector || *collector == role->self; }
    /// Returns true when the collector sends its sum to the others.
    bool handed_out() const { return collector && !role->collector; }
  };
  struct Chunk {
    Work work;
    WatchedCopier::Copy read, write;
    bool reads = false, writes = false;  ///< copies that have not ended
    std::vector<std::unique_ptr<Transfer>> incoming, outgoing, credits;
  };

  Chunk& chunk(std::size_t index) { return ring_[index % ring_.size()]; }
  // A slot holds the raw values, their encoding where there is one, and the other contributions.
  std::byte* raw(std::size_t index) const { return slots_.slot(index, 0).data(); }
  std::byte* local(std::size_t index) const {
    return raw(index) + (config_.encoded() ? raw_bytes_ : 0);
  }
  /// The place for the contribution of another top.
  std::byte* from_top(std::size_t index, std::size_t top) const {
    const std::size_t self = ring_[index % ring_.size()].work.role->self;
    return local(index) + (1 + top - (top > self ? 1 : 0)) * wire_bytes_;
  }
  /// The place of the sum, which leaves alone what is on its way to others.
  std::byte* sum_place(std::size_t index) const {
    return config_.encoded() ? raw(index) : local(index) + wire_bytes_;
  }
  void send(std::size_t index, ConstBuffer values, std::size_t top, int tag) {
    const Work& work = chunk(index).work;
    chunk(index).outgoing.push_back(group_.start_send(values, work.role->tops[top], tag));
    traffic_.add(work.from.bytes(), values.bytes());
  }

  bool progress() {
    bool moved = free_oldest();
    moved = start_next() || moved;
    moved = send_next() || moved;
    return combine_next() || moved;
  }
  bool start_next() {
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
  /// Contributions, sums and credits come in the order of chunks, each stream with a tag of its
  /// own.
  void post_receives(std::size_t index) {
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
                                                  work.role->tops[top],
                                                  message_tags::staged_credit));
      });
    } else if (work.handed_out()) {
      next.incoming.push_back(
          receive(sum_place(index), work.from, *work.collector, message_tags::staged_sum));
    } else {
      next.credits.push_back(receive(sum_place(index), {nullptr, 1, DataType::u8}, *work.collector,
                                     message_tags::staged_credit));
    }
  }
  bool send_next() {
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
  bool combine_next() {
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
  void sum(std::size_t index) {
    const Work& work = chunk(index).work;
    sources_.clear();
    for (std::size_t top = 0; top < work.role->tops.size(); ++top) {
      sources_.push_back(top == work.role->self ? local(index) : from_top(index, top));
    }
    config_.add(sources_, {sum_place(index), work.from.count, config_.type}, group_.size());
  }
  bool free_oldest() {
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

  Communicator& group_;
  const BridgeConfig config_;
  SlotMemory& slots_;
  BridgeTraffic& traffic_;
  WatchedCopier copier_;
  std::size_t raw_bytes_, wire_bytes_;
  std::vector<Chunk> ring_;
  std::deque<Work> waiting_;
  /// Chunks [combined, sent) have left; chunks [freed, combined) are on their way to the device.
  std::size_t started_ = 0, sent_ = 0, combined_ = 0, freed_ = 0;
  std::vector<const void*> sources_;
};

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

void sum_over_devices(const DeviceClusters& clusters, const BridgedSum& call, std::size_t chunk,
                      SlotMemory& slots, DeviceScratch& scratch) {
  Communicator& inside = clusters.inside;
  StagedBridge bridge(
      clusters.world, clusters.copier, clusters.staging,
      {call.input.type, call.reduction, call.wire, call.scheme, chunk, clusters.count}, slots,
      clusters.traffic);
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
                       RelayMessages& messages) {
  Communicator& inside = clusters.inside;
  const auto role = [&](std::size_t g) -> const SegmentRole& {
    return cut.plan.roles[cut.segments[g].role];
  };
  const auto result_of = [&](std::size_t g) {
    return result.part(cut.segments[g].result_begin, cut.segments[g].count);
  };
  // Calls visit(g) for the segments that are due in this rank's cluster in a step.
  const auto each_due = [&](std::size_t step, auto visit) {
    for (std::size_t place = clusters.count; place-- > 0;) {
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
      clusters.traffic.add(values.bytes(), values.bytes());
    }
    if (from_here) inside.broadcast(values, *part.inside_down);
  };
  for (std::size_t step = 0; step < ahead; ++step) post_receives(step);
  const std::size_t steps = cut.segments.size() + hop * clusters.count;
  for (std::size_t step = 0; step < steps; ++step) {
    post_receives(step + ahead);
    end_due(sends, step);
    end_due(receives, step);
    each_due(step, [&](std::size_t g) { pass_on(g, step); });
  }
  HETEROPERF_EXPECT(sends.empty() && receives.empty());
}

}  // namespace heteroperf
