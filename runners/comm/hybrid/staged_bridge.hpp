#pragma once

#include <deque>
#include <vector>

#include "runners/comm/collectives/segment_bridge.hpp"
#include "runners/comm/relay/relay_task.hpp"

namespace heteroperf {

struct StagedBridgeConfig {
  DataType type;
  Reduction reduction;
  WireFormat wire;
  BridgeScheme scheme;
  std::size_t chunk;  ///< elements of the largest
  std::size_t tops;   ///< the most of any role
};

/// SegmentBridge for device memory: one rank's end of the bridges between clusters, over staging
/// slots of the host. Chunks go through the stages at once: while one is copied to the host, those
/// before it travel, and those before them are summed and copied back.
///
/// A chunk has a slot from the start of its first copy until its result is on the device and what
/// was sent of it has left. Every top takes the chunks that it has part in in the same order, so
/// that a top is never more than `slots` chunks ahead of one that answers it; where nothing comes
/// back (a collector keeps the sum) a credit for each chunk tells that its slot is ready. Sums are
/// made on the host, in cluster order and of encoded values in float32, and have the bits that
/// SegmentBridge gives them; with `scatter` the tops are collectors of whole chunks in turn.
class StagedBridge {
 public:
  /// `place.tags` is not used; `slots` outlives this.
  StagedBridge(const RelayPlace& place, const StagedBridgeConfig& config, SlotMemory& slots,
               BridgeTraffic& traffic);

  /// Begins the sum of `from`, this cluster's part, into `to`, which is empty where this rank gets
  /// no sum; both on the device, `role` outlives the call. `first`: the same on all tops.
  void add(const BridgeRole& role, ConstBuffer from, MutableBuffer to, std::size_t first);
  /// Chunks added so far.
  std::size_t added() const { return started_ + waiting_.size(); }
  /// Waits until the first `chunks` of them are done.
  void finish(std::size_t chunks);

 private:
  struct Work {
    const BridgeRole* role = nullptr;
    ConstBuffer from;
    MutableBuffer to;
    std::optional<std::size_t> collector;

    bool everybody() const { return !collector; }
    bool collects() const { return !collector || *collector == role->self; }
    bool handed_out() const { return collector && !role->collector; }
  };
  struct Chunk {
    Work work;
    WatchedCopier::Copy read, write;
    bool reads = false, writes = false;  ///< copies that have not ended
    std::vector<std::unique_ptr<Transfer>> incoming, outgoing, credits;
  };

  bool encoded() const { return config_.wire != WireFormat::fp32; }
  Chunk& chunk(std::size_t index) { return ring_[index % ring_.size()]; }
  std::byte* raw(std::size_t index) const { return slots_.slot(index, 0).data(); }
  std::byte* own(std::size_t index) const { return raw(index) + (encoded() ? raw_bytes_ : 0); }
  std::byte* from_top(std::size_t index, std::size_t top) const;
  std::byte* sum_place(std::size_t index) const;
  ConstBuffer on_wire(const std::byte* data, std::size_t count) const;
  void send(std::size_t index, ConstBuffer values, std::size_t top, int tag);
  template <class Visit>
  void each_other_top(const Work& work, Visit visit) const;

  bool progress();
  bool start_next();
  void post_receives(std::size_t index);
  bool send_next();
  bool combine_next();
  void sum(std::size_t index);
  bool free_oldest();

  const RelayPlace place_;
  const StagedBridgeConfig config_;
  SlotMemory& slots_;
  BridgeTraffic& traffic_;
  WatchedCopier copier_;
  std::size_t raw_bytes_, wire_bytes_;
  std::vector<Chunk> ring_;
  std::deque<Work> waiting_;
  /// Chunks [combined, sent) have left, [freed, combined) are on their way to the device.
  std::size_t started_ = 0, sent_ = 0, combined_ = 0, freed_ = 0;
  std::vector<const void*> sources_;
};

}  // namespace heteroperf
