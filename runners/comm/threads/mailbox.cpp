#include "runners/comm/threads/mailbox.hpp"

#include <array>
#include <cstring>
#include <memory>

namespace heteroperf {
namespace {

/// A small send whose sender has gone on.
struct Letter : Message {
  alignas(64) std::array<std::byte, Mailbox::eager_bytes> copy;
};

void describe_as(Message& message, const Message& other) {
  message.side = other.side;
  message.from = other.from;
  message.tag = other.tag;
  message.data = other.data;
  message.count = other.count;
  message.type = other.type;
}

std::size_t bytes_of(const Message& message) { return message.count * size_of(message.type); }

}  // namespace

Mailbox::~Mailbox() {
  while (first_ != nullptr) {
    Message* message = first_;
    remove(*message);
    // Others belong to their senders, who withdraw them before their group goes.
    if (message->kept) delete static_cast<Letter*>(message);
  }
}

Mailbox::Met Mailbox::meet(Message& mine) {
  std::unique_lock lock(mutex_);
  if (Message* other = find(mine)) {
    remove(*other);
    other->state = Message::State::claimed;
    lock.unlock();
    finish(*other, mine);
    return Met::here;
  }
  if (mine.side == Message::Side::receive || bytes_of(mine) > eager_bytes) {
    append(mine);
    return Met::waiting;
  }
  auto letter = std::make_unique<Letter>();
  describe_as(*letter, mine);
  if (mine.count > 0) std::memcpy(letter->copy.data(), mine.data, bytes_of(mine));
  letter->data = letter->copy.data();
  letter->kept = true;
  append(*letter.release());
  mine.state = Message::State::done;
  return Met::waiting;
}

bool Mailbox::withdraw(Message& mine) {
  std::lock_guard lock(mutex_);
  if (mine.state.load() != Message::State::posted) return false;
  remove(mine);
  return true;
}

/// Of one sender and tag, only one side can be waiting here.
Message* Mailbox::find(const Message& mine) const {
  for (Message* message = first_; message != nullptr; message = message->next) {
    if (message->from != mine.from || message->tag != mine.tag) continue;
    return message->side == mine.side ? nullptr : message;
  }
  return nullptr;
}

void Mailbox::append(Message& message) {
  message.previous = last_;
  message.next = nullptr;
  (last_ == nullptr ? first_ : last_->next) = &message;
  last_ = &message;
}

void Mailbox::remove(Message& message) {
  (message.previous == nullptr ? first_ : message.previous->next) = message.next;
  (message.next == nullptr ? last_ : message.next->previous) = message.previous;
}

/// `first` may be gone as soon as its state is final.
void Mailbox::finish(Message& first, Message& second) {
  const bool fits = first.count == second.count && first.type == second.type;
  const bool receives = second.side == Message::Side::receive;
  if (fits && second.count > 0) {
    std::memmove(receives ? second.data : first.data, receives ? first.data : second.data,
                 bytes_of(second));
  }
  const Message::State end = fits ? Message::State::done : Message::State::misfit;
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
