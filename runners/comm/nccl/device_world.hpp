#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runners/comm/discovery/agglomeration.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/nccl/nccl_library.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {

/// A rank among devices: what all ranks are, which of them make clusters, and this one's cluster.
struct DeviceWorld {
  std::vector<RankDescriptor> descriptors;  ///< of devices, by rank
  RankClusters clusters;
  std::unique_ptr<Communicator> inside;  ///< over the native library
};

/// Of a rank whose buffers are on `library`'s device: its vendor and model, "nccl 2", and the
/// library's version; the rest as the host's.
RankDescriptor describe_device(NcclLibrary& library, RankDescriptor host);

/// The clusters are those of `labels` (one per rank); without any, ranks of one vendor and library
/// major version, however far apart: their library knows the links among them better than a detour
/// by way of the hosts would be. Collective over `world`, whose communicator stays. `host` is this
/// rank's descriptor without its device. Throws UserError for a label that unlike devices share,
/// SystemError{environment} when like ones cannot talk to each other.
DeviceWorld make_device_world(World& world, std::shared_ptr<NcclLibrary> library,
                              const RankDescriptor& host, const std::vector<std::string>& labels);

/// Links and clusters of devices for a cluster file: links among like ranks are those of their
/// library, others those of messages staged through the hosts; where links of like ranks differ by
/// more than `config.gap` they are several clusters. Takes `devices.inside`. Collective.
struct MeasuredDevices {
  RankClusters clusters;
  Cluster file;  ///< without classes
};
MeasuredDevices measure_devices(World& world, DeviceWorld& devices,
                                const AgglomerationConfig& config, const LinkSweep& sweep = {});

/// The group of all ranks, in device memory: `devices.inside` where there is one cluster and the
/// configuration asks for nothing else, otherwise the hybrid communicator over it. Takes `inside`.
/// `config.clusters` is not used. Collective.
std::unique_ptr<Communicator> make_device_group(World& world, DeviceWorld& devices,
                                                HybridConfig config);

}  // namespace heteroperf
