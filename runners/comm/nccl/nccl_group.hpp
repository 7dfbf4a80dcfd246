#pragma once

#include <memory>

#include "runners/comm/nccl/nccl_library.hpp"
#include "runners/comm/peer_watch.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {

/// This rank's device. Ranks of a host take its devices in turn; more ranks than devices share
/// them, for functional tests only. Collective over `world`. Throws SystemError{environment} "not
/// built with NCCL (…)", without a device, or with the libraries' words.
std::shared_ptr<NcclLibrary> open_nccl_device(World& world);

/// What waits of this rank ask: the control channel, which also knows who has finished where it
/// can.
std::shared_ptr<PeerWatch> watch_of(const World& world);

/// A NCCL group of the ranks of `part`, a part of `world` over the hosts, which carries the
/// start-up. Collective over `part`. Throws SystemError{environment} with the library's words.
std::unique_ptr<Communicator> make_nccl_group(World& world, std::shared_ptr<NcclLibrary> library,
                                              Communicator& part);

/// Version of the NCCL library and why it is not usable; never throws.
BackendStatus nccl_status();

}  // namespace heteroperf
