#pragma once

#include <memory>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/comm/nccl/nccl_library.hpp"
#include "runners/comm/peer_watch.hpp"

namespace heteroperf {

/// One rank of a group over NCCL. Buffers live in `library->memory()`. Differs from the interface
/// in two ways that NCCL imposes: messages between two ranks match in the order in which they are
/// started, tags are not looked at; and what start_send and start_receive began is waited for
/// before the next collective. Messages are handed to the library, all that were started as one
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

}  // namespace heteroperf
