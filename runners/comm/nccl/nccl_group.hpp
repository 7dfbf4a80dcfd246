#pragma once

#include <memory>
#include <vector>

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

}  // namespace heteroperf
