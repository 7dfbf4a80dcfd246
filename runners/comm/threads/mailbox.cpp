#include "runners/comm/threads/mailbox.hpp"

#include <array>
#include <cstring>
#include <memory>

// Every rank has one mailbox, where the sends to it and its own receives meet. The messages that
// wait form a list in order of arrival:
//
//     first_ ─► send(0, tag 3) ─► receive(2, tag 1) ─► send(0, tag 3) ◄─ last_
//
// Whoever comes looks for the first entry with its own sender and tag. If that is the other side,
// the two have met; the newcomer takes the entry out and copies without the lock. Otherwise the
// newcomer waits at the end of the list. A small send leaves a copy of itself (a letter) and goes
// on.

namespace heteroperf {
namespace {

/// The copy of a small send whose sender has gone on.
struct Letter : MailboxMessage {
  alignas(64) std::array<std::byte, Mailbox::eager_bytes> copy;
};

}  // namespace

Mailbox::~Mailbox() {
  while (first_ != nullptr) {
    MailboxMessage* message = first_;
    remove(*message);
    // Messages that are no letters belong to ranks, which withdraw them before their group goes.
    if (message->kept) delete static_cast<Letter*>(message);
  }
}

Mailbox::Met Mailbox::meet(MailboxMessage& message) {
  std::unique_lock lock(mutex_);
  if (MailboxMessage* counterpart = counterpart_of(message)) {
    remove(*counterpart);
    counterpart->state = MailboxMessage::State::claimed;
    lock.unlock();
    finish(*counterpart, message);
    return Met::here;
  }
  if (message.side == MailboxMessage::Side::receive || message.values.bytes() > eager_bytes) {
    append(message);
    return Met::waiting;
  }
  auto letter = std::make_unique<Letter>();
  letter->side = message.side;
  letter->from = message.from;
  letter->tag = message.tag;
  letter->values = message.values;
  letter->values.data = letter->copy.data();
  if (message.values.count > 0) {
    std::memcpy(letter->copy.data(), message.values.data, message.values.bytes());
  }
  letter->kept = true;
  append(*letter.release());
  message.state = MailboxMessage::State::done;
  return Met::waiting;
}

bool Mailbox::withdraw(MailboxMessage& message) {
  std::lock_guard lock(mutex_);
  if (message.state.load() != MailboxMessage::State::posted) return false;
  remove(message);
  return true;
}

/// Only one side of each sender and tag can be waiting here, so the first entry decides.
MailboxMessage* Mailbox::counterpart_of(const MailboxMessage& message) const {
  for (MailboxMessage* entry = first_; entry != nullptr; entry = entry->next) {
    if (entry->from != message.from || entry->tag != message.tag) continue;
    return entry->side == message.side ? nullptr : entry;
  }
  return nullptr;
}

void Mailbox::append(MailboxMessage& message) {
  message.previous = last_;
  message.next = nullptr;
  (last_ == nullptr ? first_ : last_->next) = &message;
  last_ = &message;
}

void Mailbox::remove(MailboxMessage& message) {
  (message.previous == nullptr ? first_ : message.previous->next) = message.next;
  (message.next == nullptr ? last_ : message.next->previous) = message.previous;
}

/// Copies and ends both sides. `first` may be gone as soon as its state is final.
void Mailbox::finish(MailboxMessage& first, MailboxMessage& second) {
  const MutableBuffer a = first.values, b = second.values;
  const bool fits = a.count == b.count && a.type == b.type;
  const bool receives = second.side == MailboxMessage::Side::receive;
  if (fits && b.count > 0) {
    std::memmove(receives ? b.data : a.data, receives ? a.data : b.data, b.bytes());
  }
  const MailboxMessage::State end =
      fits ? MailboxMessage::State::done : MailboxMessage::State::misfit;
  second.peer_count = a.count;
  second.peer_type = a.type;
  first.peer_count = b.count;
  first.peer_type = b.type;
  second.state = end;
  if (first.kept) {
    delete static_cast<Letter*>(&first);
  } else {
    first.state = end;
  }
}

}  // namespace heteroperf
