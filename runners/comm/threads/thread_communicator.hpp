#pragma once

#include <memory>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/comm/threads/thread_world.hpp"

namespace heteroperf {

/// One communicator per member, in the order of `members` (ranks of the world).
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    const std::shared_ptr<ThreadWorld>& world, std::vector<RankId> members);

}  // namespace heteroperf
