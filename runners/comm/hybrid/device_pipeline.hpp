#pragma once

#include "runners/comm/hybrid/hybrid_group.hpp"
#include "runners/comm/hybrid/staged_bridge.hpp"
#include "runners/comm/relay/relay_messages.hpp"

namespace heteroperf {

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
