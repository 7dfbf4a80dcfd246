#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runners/comm/discovery/agglomeration.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/nccl/nccl_library.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {

/// Opens this rank's device. Ranks of a host take its devices in turn; more ranks than devices
/// share them, for functional tests only. Collective over `world`. Throws SystemError{environment}
/// "not built with NCCL (…)", without a device, or with the libraries' words.
std::shared_ptr<NcclLibrary> open_nccl_device(World& world);

/// The watch that this rank's waits ask: the control channel, which also knows who has finished
/// where it can.
std::shared_ptr<PeerWatch> watch_of(const World& world);

/// Makes one rank of a group over NCCL. Buffers live in `library->memory()`. It differs from the
/// interface in two ways that NCCL imposes: messages between two ranks match in the order in which
/// they are started, whatever their tags; and all that start_send and start_receive began is waited
/// for before the next collective. Messages are handed to the library, all that were started as one
/// group, when one of them is first tested or waited for. The order of sums is the library's: equal
/// on all ranks and in repeated runs on the same machine.
///
/// A wait polls the stream, the library's asynchronous error and `watch`; when either reports a
/// failure every operation under way is aborted and the wait throws.
///
/// `members` are the ranks of the world in the group's order. Collective; throws
/// SystemError{environment} with the library's words, PeerError when a peer is lost.
std::unique_ptr<Communicator> make_nccl_communicator(std::shared_ptr<NcclLibrary> library,
                                                     const NcclId& id, RankId rank,
                                                     std::vector<RankId> members,
                                                     std::shared_ptr<PeerWatch> watch);

/// Makes a NCCL group of the ranks of `part`, a part of `world` over the hosts, which carries the
/// start-up. Collective over `part`. Throws as make_nccl_communicator().
std::unique_ptr<Communicator> make_nccl_group(World& world, std::shared_ptr<NcclLibrary> library,
                                              Communicator& part);

/// The version of the NCCL library and the reason why it is not usable. Never throws.
BackendStatus nccl_status();

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
