#include "runners/comm/threads/mailbox.hpp"

#include <array>
#include <cstring>
#include <memory>

namespace heteroperf {
namespace {

/// A small send whose sender has gone on.
struct Letter : MailboxMessage {
  alignas(64) std::array<std::byte, Mailbox::eager_bytes> copy;
};

void describe_as(MailboxMessage& message, const MailboxMessage& other) {
  message.side = other.side;
  message.from = other.from;
  message.tag = other.tag;
  message.data = other.data;
  message.count = other.count;
  message.type = other.type;
}

std::size_t bytes_of(const MailboxMessage& message) {
  return message.count * size_of(message.type);
}

}  // namespace

Mailbox::~Mailbox() {
  while (first_ != nullptr) {
    MailboxMessage* message = first_;
    remove(*message);
    // Others belong to their senders, who withdraw them before their group goes.
    if (message->kept) delete static_cast<Letter*>(message);
  }
}

Mailbox::Met Mailbox::meet(MailboxMessage& mine) {
  std::unique_lock lock(mutex_);
  if (MailboxMessage* other = find(mine)) {
    remove(*other);
    other->state = MailboxMessage::State::claimed;
    lock.unlock();
    finish(*other, mine);
    return Met::here;
  }
  if (mine.side == MailboxMessage::Side::receive || bytes_of(mine) > eager_bytes) {
    append(mine);
    return Met::waiting;
  }
  auto letter = std::make_unique<Letter>();
  describe_as(*letter, mine);
  if (mine.count > 0) std::memcpy(letter->copy.data(), mine.data, bytes_of(mine));
  letter->data = letter->copy.data();
  letter->kept = true;
  append(*letter.release());
  mine.state = MailboxMessage::State::done;
  return Met::waiting;
}

bool Mailbox::withdraw(MailboxMessage& mine) {
  std::lock_guard lock(mutex_);
  if (mine.state.load() != MailboxMessage::State::posted) return false;
  remove(mine);
  return true;
}

/// Of one sender and tag, only one side can be waiting here.
MailboxMessage* Mailbox::find(const MailboxMessage& mine) const {
  for (MailboxMessage* message = first_; message != nullptr; message = message->next) {
    if (message->from != mine.from || message->tag != mine.tag) continue;
    return message->side == mine.side ? nullptr : message;
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

/// `first` may be gone as soon as its state is final.
void Mailbox::finish(MailboxMessage& first, MailboxMessage& second) {
  const bool fits = first.count == second.count && first.type == second.type;
  const bool receives = second.side == MailboxMessage::Side::receive;
  if (fits && second.count > 0) {
    std::memmove(receives ? second.data : first.data, receives ? first.data : second.data,
                 bytes_of(second));
  }
  const MailboxMessage::State end =
      fits ? MailboxMessage::State::done : MailboxMessage::State::misfit;
  second.other_count = first.count;
  second.other_type = first.type;
  first.other_count = second.count;
  first.other_type = second.type;
  second.state = end;
  if (first.kept) {
    delete static_cast<Letter*>(&first);
  } else {
    first.state = end;
  }
}

}  // namespace heteroperf
