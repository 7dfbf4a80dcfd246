#pragma once

#include <memory>

#include "runners/comm/world.hpp"

namespace heteroperf {

/// A NCCL group of all ranks of `world`, beside its own communicator, which carries the start-up.
/// Ranks of a host take its devices in turn; more ranks than devices share them, for functional
/// tests only. Collective. Throws SystemError{environment} "not built with NCCL (…)", without a
/// device, or with the libraries' words.
std::unique_ptr<Communicator> make_nccl_group(World& world);

/// Version of the NCCL library and why it is not usable; never throws.
BackendStatus nccl_status();

}  // namespace heteroperf
