#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "runners/comm/collectives/segment_bridge.hpp"
#include "runners/comm/hybrid/hybrid_group.hpp"
#include "runners/comm/relay/relay.hpp"
#include "runners/comm/relay/staging.hpp"

namespace heteroperf {

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
               const BridgeConfig& config, SlotMemory& slots, BridgeTraffic& traffic);

  /// Begins the sum of `from`, this cluster's contribution, into `to`, which is empty where this
  /// rank gets no sum. Both are on the device; `role` outlives the call. `first` numbers the first
  /// chunk and is the same on all tops.
  void add(const BridgeRole& role, ConstBuffer from, MutableBuffer to, std::size_t first);
  /// The number of chunks added so far.
  std::size_t added() const { return started_ + waiting_.size(); }
  /// Waits until the first `chunks` of them are done. Throws SystemError{timeout} when a copy does
  /// not end, and what the waits of the group throw.
  void finish(std::size_t chunks);

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
  std::byte* from_top(std::size_t index, std::size_t top) const;
  /// The place of the sum, which leaves alone what is on its way to others.
  std::byte* sum_place(std::size_t index) const {
    return config_.encoded() ? raw(index) : local(index) + wire_bytes_;
  }
  void send(std::size_t index, ConstBuffer values, std::size_t top, int tag);

  bool progress();
  bool start_next();
  void post_receives(std::size_t index);
  bool send_next();
  bool combine_next();
  void sum(std::size_t index);
  bool free_oldest();

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

/// Device memory that a rank needs beside its callers' buffers. It grows and never shrinks.
class DeviceScratch {
 public:
  explicit DeviceScratch(BufferMemory& memory) : memory_(memory) {}
  std::byte* reserve(std::size_t bytes);

 private:
  BufferMemory& memory_;
  MemoryBlock block_;
  std::size_t bytes_ = 0;
};

/// The clusters of devices as one rank uses them. `inside` is the native library of its cluster.
struct DeviceClusters {
  Communicator& inside;
  const LanePlans& plans;
};

/// Sums over several clusters of devices: the native reduce in each cluster, the bridge among tops
/// in chunks of `chunk` elements, and the native broadcast or one message inside.
void sum_over_devices(const DeviceClusters& clusters, const BridgedSum& call, StagedBridge& bridge,
                      std::size_t chunk, DeviceScratch& scratch);

/// Copies each segment of `result` from its root to everybody: the native broadcast in the root's
/// cluster, a relay to the next of `count` clusters, the broadcast there, and so on.
void copy_over_devices(const DeviceClusters& clusters, const CutVector& cut, MutableBuffer result,
                       RelayMessages& messages, std::size_t count, BridgeTraffic& traffic);

}  // namespace heteroperf
