#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>

#include "metrics/base/error.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/threads/thread_group.hpp"

// A transfer is posted with the receiver's mailbox when it is made. From then on it ends in one of
// three ways: the other side meets it and copies, it is taken back because the other rank is gone,
// or it is destroyed, which takes it back too.

namespace heteroperf {

// Every rank has one mailbox, where the sends to it and its own receives meet. The messages that
// wait form a list in order of arrival:
//
//     first_ ─► send(0, tag 3) ─► receive(2, tag 1) ─► send(0, tag 3) ◄─ last_
//
// Whoever comes looks for the first entry with its own sender and tag. If that is the other side,
// the two have met; the newcomer takes the entry out and copies without the lock. Otherwise the
// newcomer waits at the end of the list. A small send leaves a copy of itself (a letter) and goes
// on.

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

namespace {

constexpr int max_tag = 4095;

}  // namespace

ThreadTransfer::ThreadTransfer(std::shared_ptr<ThreadGroup> group, RankId self, RankId peer,
                               MailboxMessage::Side side, int tag, MutableBuffer values)
    : group_(std::move(group)), self_(self.index()), peer_(peer.index()) {
  message_.side = side;
  message_.from = sends() ? self.value() : peer.value();
  message_.tag = tag;
  message_.values = values;
  post();
}

ThreadTransfer::~ThreadTransfer() {
  if (!message_.ended()) take_back();
}

void ThreadTransfer::post() {
  HETEROPERF_EXPECT(peer_ < group_->size());
  HETEROPERF_EXPECT(message_.tag >= 0 && message_.tag <= max_tag);
  // Without this a small send would end although nobody can receive it.
  if (sends() && in_vain()) {
    message_.state = MailboxMessage::State::misfit;
    give_up();
  }
  if (mailbox().meet(message_) == Mailbox::Met::here) group_->wait_points[peer_].wake();
}

bool ThreadTransfer::test() {
  if (!message_.ended()) {
    // The message is looked at again after the peer, because what a peer did before it went still
    // counts.
    if (!in_vain()) return false;
    if (!message_.ended() && take_back()) give_up();
  }
  check_fit();
  return true;
}

void ThreadTransfer::wait() {
  if (!message_.ended() && peer_ == self_ && take_back()) {
    throw Error(ErrorKind::run_failed,
                {{text() + " from a rank to itself would wait for ever",
                  "its other side was not started before", "Start the other side first."}});
  }
  group_->wait_points[self_].wait(group_->world->spins(),
                                  [&] { return message_.ended() || in_vain(); });
  if (!message_.ended() && take_back()) give_up();
  check_fit();
}

/// False when the other side has come first. Its copy has then ended.
bool ThreadTransfer::take_back() {
  if (mailbox().withdraw(message_)) {
    message_.state = MailboxMessage::State::misfit;
    return true;
  }
  // The other side is copying and waits for nobody, so this wait is short.
  group_->wait_points[self_].wait(group_->world->spins(), [&] { return message_.ended(); });
  return false;
}

/// Throws for a message that will not be met.
void ThreadTransfer::give_up() {
  throw PeerError(group_->world->failure_among(awaited()).value(), text());
}

/// The sender of a small message has gone on, so the receiver alone is told of a misfit.
void ThreadTransfer::check_fit() const {
  if (message_.state.load() != MailboxMessage::State::misfit || sends()) return;
  throw Error(
      ErrorKind::run_failed,
      {{fmt::format("rank {} awaits {} {} with tag {}, rank {} sent {} {}",
                    group_->members[self_].value(), message_.values.count,
                    to_string(message_.values.type), message_.tag, group_->members[peer_].value(),
                    message_.peer_count, to_string(message_.peer_type)),
        "both sides need the same count and type", remedy_of_misfit}});
}

std::string ThreadTransfer::text() const {
  return describe(sends() ? "send" : "receive", message_.values);
}

}  // namespace heteroperf
