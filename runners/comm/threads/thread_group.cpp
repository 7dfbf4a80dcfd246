#include "runners/comm/threads/thread_group.hpp"

namespace heteroperf {

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadWorld> the_world, std::vector<RankId> ranks)
    : world(std::move(the_world)),
      members(std::move(ranks)),
      offers{std::vector<ThreadOffer>(members.size()), std::vector<ThreadOffer>(members.size())},
      children(members.size()),
      wait_points(members.size()),
      mailboxes(members.size()),
      meeting(static_cast<int>(members.size())) {}

}  // namespace heteroperf
