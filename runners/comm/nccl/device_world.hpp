#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runners/comm/discovery/agglomeration.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/nccl/nccl_library.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {

/// A rank's view of a world of devices: the devices of all ranks, the clusters that like devices
/// make, and the communicator of this rank's cluster.
struct DeviceWorld {
  std::vector<RankDescriptor> descriptors;  ///< the devices, by rank
  RankClusters clusters;
  std::unique_ptr<Communicator> inside;  ///< over the native library
};

/// Describes a rank whose buffers are on `library`'s device: the device's vendor and model, "nccl
/// 2", and the library's version. Everything else is as in `host`.
RankDescriptor describe_device(NcclLibrary& library, RankDescriptor host);

/// Joins the ranks' devices to a world. The clusters are those of `labels` (one per rank). Without
/// labels, ranks of one vendor and library major version are a cluster, however far apart they are:
/// their library uses the links among them better than a detour by way of the hosts could.
/// Collective over `world`, whose communicator stays. `host` is this rank's descriptor without its
/// device. Throws UserError for a label that unlike devices share, SystemError{environment} when
/// like ones cannot talk to each other.
DeviceWorld make_device_world(World& world, std::shared_ptr<NcclLibrary> library,
                              const RankDescriptor& host, const std::vector<std::string>& labels);

struct MeasuredDevices {
  RankClusters clusters;
  Cluster file;  ///< without classes
};
/// Measures links and clusters of devices for a cluster file. Links among like ranks are those of
/// their library, links among unlike ones are messages staged through the hosts. Where links of
/// like ranks differ by more than `config.gap` these are several clusters. Takes `devices.inside`.
/// Collective.
MeasuredDevices measure_devices(World& world, DeviceWorld& devices,
                                const AgglomerationConfig& config, const LinkSweep& sweep = {});

/// Makes the group of all ranks, in device memory: `devices.inside` where there is one cluster and
/// the configuration asks for nothing else, otherwise the hybrid communicator over it. Takes
/// `inside`. `config.clusters` is not used. Collective.
std::unique_ptr<Communicator> make_device_group(World& world, DeviceWorld& devices,
                                                HybridConfig config);

}  // namespace heteroperf
