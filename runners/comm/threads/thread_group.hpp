#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "runners/comm/collective_terms.hpp"
#include "runners/comm/threads/mailbox.hpp"
#include "runners/comm/threads/meeting.hpp"
#include "runners/comm/threads/thread_world.hpp"

namespace heteroperf {

/// The things that a rank shows the others while they are in a collective together.
struct alignas(64) ThreadOffer {
  /// Vectors up to this size travel in the offer itself.
  static constexpr std::size_t small_bytes = 1024;

  CollectiveTerms terms;
  const void* read = nullptr;
  void* write = nullptr;
  Counts to_each, from_each;  ///< only in all_to_all
  SplitWish wish;             ///< only in split
  alignas(64) std::array<std::byte, small_bytes> small;
};

/// The state that the members of one group share.
struct ThreadGroup final : Wakeable {
  ThreadGroup(std::shared_ptr<ThreadWorld> the_world, std::vector<RankId> ranks)
      : world(std::move(the_world)),
        members(std::move(ranks)),
        offers{std::vector<ThreadOffer>(members.size()), std::vector<ThreadOffer>(members.size())},
        children(members.size()),
        wait_points(members.size()),
        mailboxes(members.size()),
        meeting(members.size()) {}

  std::size_t size() const { return members.size(); }
  void wake_everyone() override {
    for (WaitPoint& point : wait_points) point.wake();
  }

  const std::shared_ptr<ThreadWorld> world;
  const std::vector<RankId> members;  ///< ranks of the world
  /// Every rank has two offers and uses them by turns: while one collective begins, a late rank may
  /// still read the offers of the one before.
  std::array<std::vector<ThreadOffer>, 2> offers;
  std::vector<std::shared_ptr<ThreadGroup>> children;  ///< groups of a split, by their first rank
  std::vector<WaitPoint> wait_points;
  std::vector<Mailbox> mailboxes;
  Meeting meeting;
};

/// A send or receive between two ranks of a group. It may also live on the stack.
class ThreadTransfer final : public Transfer {
 public:
  /// Posts the message. Throws PeerError when the other rank is gone and can never meet it.
  ThreadTransfer(std::shared_ptr<ThreadGroup> group, RankId self, const Outgoing& outgoing);
  ThreadTransfer(std::shared_ptr<ThreadGroup> group, RankId self, const Incoming& incoming);
  /// Takes the message back, or waits until the other side has copied.
  ~ThreadTransfer() override;
  ThreadTransfer(const ThreadTransfer&) = delete;
  ThreadTransfer& operator=(const ThreadTransfer&) = delete;

  bool test() override;
  void wait() override;

 private:
  void post();
  bool sends() const { return message_.side == MailboxMessage::Side::send; }
  Mailbox& mailbox() const { return group_->mailboxes[sends() ? peer_ : self_]; }
  std::span<const RankId> awaited() const { return {&group_->members[peer_], 1}; }
  bool in_vain() const { return group_->world->in_vain(awaited()); }
  [[noreturn]] void give_up();
  void check_fit() const;
  bool take_back();
  std::string text() const;

  std::shared_ptr<ThreadGroup> group_;
  MailboxMessage message_;
  std::size_t self_, peer_;
};

}  // namespace heteroperf
