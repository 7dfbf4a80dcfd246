#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "runners/comm/collective_terms.hpp"
#include "runners/comm/threads/mailbox.hpp"
#include "runners/comm/threads/meeting.hpp"
#include "runners/comm/threads/thread_world.hpp"
#include "runners/comm/threads/wait_point.hpp"

namespace heteroperf {

/// What a rank shows the others while they are in a collective together.
struct alignas(64) ThreadOffer {
  /// Vectors up to this size travel in the offer itself.
  static constexpr std::size_t small_bytes = 1024;

  CollectiveTerms terms;
  const void* read = nullptr;
  void* write = nullptr;
  Counts to_each, from_each;  ///< of all_to_all
  int colour = 0, key = 0;    ///< of split
  alignas(64) std::array<std::byte, small_bytes> small;
};

/// The part that the members of one group share.
struct ThreadGroup final : Wakeable {
  ThreadGroup(std::shared_ptr<ThreadWorld> the_world, std::vector<RankId> ranks);

  std::size_t size() const { return members.size(); }
  void wake_everyone() override {
    for (WaitPoint& point : wait_points) point.wake();
  }

  const std::shared_ptr<ThreadWorld> world;
  const std::vector<RankId> members;  ///< ranks of the world
  /// Two per rank, used in turn: while one collective begins, a late rank may still read what was
  /// shown in the one before.
  std::array<std::vector<ThreadOffer>, 2> offers;
  std::vector<std::shared_ptr<ThreadGroup>> children;  ///< of a split, by its first rank
  std::vector<WaitPoint> wait_points;
  std::vector<Mailbox> mailboxes;
  Meeting meeting;
};

}  // namespace heteroperf
