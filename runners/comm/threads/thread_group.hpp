#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "runners/comm/buffer.hpp"
#include "runners/comm/collective_terms.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/control/control_state.hpp"

namespace heteroperf {

struct ThreadGroup;

/// The state that all ranks of one process share: who failed, who has finished, who serves
/// messages.
class ThreadWorld final : public PeerWatch {
 public:
  explicit ThreadWorld(int size);

  /// The number of pauses before a waiting thread gives its core away.
  int spins() const { return spins_; }
  /// Shared because a reply may be kept longer than the world lives.
  const std::shared_ptr<ControlState>& state() const { return state_; }
  MessageService& service() { return service_; }

  void fail(RankFailure failure);
  /// The rank's body has returned; it takes part in nothing any more.
  void finish(RankId rank);
  std::optional<RankFailure> failure_among(std::span<const RankId> awaited) const override;
  /// True when failure_among() has a failure. Makes no text, for waiting loops.
  bool in_vain(std::span<const RankId> awaited) const;

  /// Adds a group that is woken when a rank fails or finishes.
  void add(const std::shared_ptr<ThreadGroup>& group);

 private:
  bool has_finished(RankId rank) const { return finished_[rank.index()].load(); }
  void wake_groups();

  std::shared_ptr<ControlState> state_ = std::make_shared<ControlState>();
  std::vector<std::atomic<bool>> finished_;
  std::atomic<int> finished_count_{0};
  int spins_;
  std::mutex groups_mutex_;
  std::vector<std::weak_ptr<ThreadGroup>> groups_;
  MessageService service_;
};

/// Makes one communicator per member, in the order of `members` (ranks of the world).
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    const std::shared_ptr<ThreadWorld>& world, std::vector<RankId> members);

/// A barrier that can be left on failure without anybody touching the buffers of one who left.
///
/// Either all members have arrived, or somebody broke it and nobody passes. Number of the round and
/// members that have arrived stand in one word, so both are decided by one compare-and-swap and
/// cannot mix.
class Meeting {
 public:
  enum class Outcome { waiting, complete, broken };

  explicit Meeting(std::size_t members) : members_(static_cast<std::uint32_t>(members)) {}

  /// Announces the caller. `round` then identifies the meeting it waits for.
  Outcome arrive(std::uint32_t& round) {
    std::uint64_t word = state_.load();
    while (true) {
      State next = unpack(word);
      if (next.arrived == broken_mark) return Outcome::broken;
      round = next.round;
      const bool last = ++next.arrived == members_;
      if (last) next = {round + 1, 0};
      if (state_.compare_exchange_weak(word, pack(next))) {
        return last ? Outcome::complete : Outcome::waiting;
      }
    }
  }

  Outcome look(std::uint32_t round) const {
    const State now = unpack(state_.load());
    if (now.round != round) return Outcome::complete;
    return now.arrived == broken_mark ? Outcome::broken : Outcome::waiting;
  }

  /// Calls the meeting off, unless it has just become complete.
  Outcome leave(std::uint32_t round) {
    std::uint64_t word = state_.load();
    while (unpack(word).round == round && unpack(word).arrived != broken_mark) {
      if (state_.compare_exchange_weak(word, pack({round, broken_mark}))) return Outcome::broken;
    }
    return look(round);
  }

 private:
  struct State {
    std::uint32_t round;
    std::uint32_t arrived;
  };
  static constexpr std::uint32_t broken_mark = 0xffffffff;
  static State unpack(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
  static std::uint64_t pack(State state) {
    return static_cast<std::uint64_t>(state.round) << 32 | state.arrived;
  }

  std::uint32_t members_;
  std::atomic<std::uint64_t> state_{0};
};

/// The place where one thread waits for others: it spins, then yields, then sleeps. A yield that
/// takes long has given the core to a thread that computes. A sleeper that is woken gets the core
/// back at once, but a thread that yields gets it only when the other's time slice is over, so it
/// goes to sleep then.
///
/// The values that `ready` reads and wakers write are sequentially consistent atomics, so either
/// the waiter sees the change or the waker sees the sleeper.
class alignas(64) WaitPoint {
 public:
  /// `spins` is 0 where ranks outnumber cores: the awaited thread needs the core.
  template <class Ready>
  void wait(int spins, Ready ready) {
    for (int i = 0; i < spins; ++i) {
      if (ready()) return;
      pause();
    }
    for (int i = 0; i < yields; ++i) {
      if (ready()) return;
      const Clock::time_point before = Clock::now();
      std::this_thread::yield();
      if (Clock::now() - before > long_yield) break;
    }
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    changed_.wait(lock, ready);
    sleepers_.fetch_sub(1);
  }

  void wake() {
    if (sleepers_.load() == 0) return;
    { std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int yields = 200;
  static constexpr Clock::duration long_yield = std::chrono::microseconds(100);

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// One side of a message. The side that comes second copies, straight from buffer to buffer, so a
/// message moves on without either side waiting. The first side owns the object and keeps it and
/// the buffer in place until `state` is final or the mailbox has given it back.
struct MailboxMessage {
  enum class Side { send, receive };
  enum class State {
    posted,   ///< waits for the other side
    claimed,  ///< the other side is copying
    done,
    misfit,  ///< count or type differ; nothing was copied
  };

  Side side = Side::send;
  int from = 0;
  int tag = 0;
  MutableBuffer values;  ///< a send's values are only read

  /// The count and type of the other side, known once the two have met.
  std::size_t peer_count = 0;
  DataType peer_type = DataType::u8;
  std::atomic<State> state{State::posted};

  bool ended() const { return state.load() >= State::done; }

 private:
  friend class Mailbox;
  MailboxMessage* previous = nullptr;
  MailboxMessage* next = nullptr;
  bool kept = false;  ///< a copy the mailbox made; nobody waits for it
};

/// The sends and receives of one rank's incoming messages that have not met yet. Thread-safe.
class Mailbox {
 public:
  /// A send up to this size is copied where its receiver has not come, and so ends at once.
  static constexpr std::size_t eager_bytes = 4096;

  Mailbox() = default;
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  enum class Met { here, waiting };
  /// Meets the oldest other side with the same sender and tag, and copies; both have ended then.
  /// Otherwise `message` waits here for it, except for a small send, which has ended too.
  Met meet(MailboxMessage& message);
  /// Takes back a message that waits here. False when the other side has come.
  bool withdraw(MailboxMessage& message);

 private:
  MailboxMessage* counterpart_of(const MailboxMessage& message) const;
  void append(MailboxMessage& message);
  void remove(MailboxMessage& message);
  static void finish(MailboxMessage& first, MailboxMessage& second);

  std::mutex mutex_;
  MailboxMessage* first_ = nullptr;
  MailboxMessage* last_ = nullptr;
};

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
struct ThreadGroup {
  ThreadGroup(std::shared_ptr<ThreadWorld> the_world, std::vector<RankId> ranks)
      : world(std::move(the_world)),
        members(std::move(ranks)),
        offers{std::vector<ThreadOffer>(members.size()), std::vector<ThreadOffer>(members.size())},
        children(members.size()),
        wait_points(members.size()),
        mailboxes(members.size()),
        meeting(members.size()) {}

  std::size_t size() const { return members.size(); }
  void wake_everyone() {
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
  ThreadTransfer(std::shared_ptr<ThreadGroup> group, RankId self, const Outgoing& out)
      : ThreadTransfer(std::move(group), self, out.to, MailboxMessage::Side::send, out.tag,
                       {const_cast<void*>(out.values.data), out.values.count, out.values.type}) {}
  ThreadTransfer(std::shared_ptr<ThreadGroup> group, RankId self, const Incoming& in)
      : ThreadTransfer(std::move(group), self, in.from, MailboxMessage::Side::receive, in.tag,
                       in.values) {}
  /// Takes the message back, or waits until the other side has copied.
  ~ThreadTransfer() override;
  ThreadTransfer(const ThreadTransfer&) = delete;
  ThreadTransfer& operator=(const ThreadTransfer&) = delete;

  bool test() override;
  void wait() override;

 private:
  ThreadTransfer(std::shared_ptr<ThreadGroup> group, RankId self, RankId peer,
                 MailboxMessage::Side side, int tag, MutableBuffer values);
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
