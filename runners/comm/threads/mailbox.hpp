#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

#include "runners/comm/buffer.hpp"

namespace heteroperf {

/// One side of a message. Whoever comes second copies, straight from buffer to buffer, so a
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
  void* data = nullptr;  ///< of a send: read only
  std::size_t count = 0;
  DataType type = DataType::u8;

  /// What the other side has; known once the two have met.
  std::size_t other_count = 0;
  DataType other_type = DataType::u8;
  std::atomic<State> state{State::posted};

  bool ended() const { return state.load() >= State::done; }

 private:
  friend class Mailbox;
  MailboxMessage* previous = nullptr;
  MailboxMessage* next = nullptr;
  bool kept = false;  ///< a copy the mailbox made; nobody waits for it
};

/// Both sides of the messages to one rank that have not met. Thread-safe.
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
  /// Otherwise `mine` waits here for it, except for a small send, which has ended too.
  Met meet(MailboxMessage& mine);
  /// Takes back what waits here. False when the other side has come.
  bool withdraw(MailboxMessage& mine);

 private:
  MailboxMessage* find(const MailboxMessage& mine) const;
  void append(MailboxMessage& message);
  void remove(MailboxMessage& message);
  static void finish(MailboxMessage& first, MailboxMessage& second);

  std::mutex mutex_;
  MailboxMessage* first_ = nullptr;
  MailboxMessage* last_ = nullptr;
};

}  // namespace heteroperf
