#pragma once

#include <cstddef>

#include "runners/comm/collectives/segment_bridge.hpp"
#include "runners/comm/hybrid/hybrid_group.hpp"
#include "runners/comm/relay/relay.hpp"
#include "runners/comm/relay/staging.hpp"

namespace heteroperf {

/// Device memory that a rank needs beside its callers' buffers. It grows and never shrinks.
class DeviceScratch {
 public:
  explicit DeviceScratch(BufferMemory& memory) : memory_(memory) {}
  std::byte* reserve(std::size_t bytes) {
    if (bytes > bytes_) {
      block_ = MemoryBlock();
      block_ = MemoryBlock(memory_, bytes);
      bytes_ = bytes;
    }
    return static_cast<std::byte*>(block_.data());
  }

 private:
  BufferMemory& memory_;
  MemoryBlock block_;
  std::size_t bytes_ = 0;
};

/// The clusters of devices as one rank uses them. `inside` is the native library of its cluster;
/// what crosses goes over `world`, copied by `copier` through slots of the host's memory.
struct DeviceClusters {
  Communicator& world;
  Communicator& inside;
  DeviceCopier& copier;
  const RelayConfig& staging;  ///< slots and deadline
  const LanePlans& plans;
  std::size_t count;  ///< the number of clusters
  BridgeTraffic& traffic;
};

/// Sums over several clusters of devices: the native reduce in each cluster, the bridge among tops
/// in chunks of `chunk` elements through `slots`, and the native broadcast or one message inside.
/// Throws SystemError{timeout} when a copy does not end, and what the waits of the group throw.
void sum_over_devices(const DeviceClusters& clusters, const BridgedSum& call, std::size_t chunk,
                      SlotMemory& slots, DeviceScratch& scratch);

/// Copies each segment of `result` from its root to everybody: the native broadcast in the root's
/// cluster, a relay to the next cluster, the broadcast there, and so on.
void copy_over_devices(const DeviceClusters& clusters, const CutVector& cut, MutableBuffer result,
                       RelayMessages& messages);

}  // namespace heteroperf
