#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

#include "runners/comm/buffer.hpp"

namespace heteroperf {

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

}  // namespace heteroperf
