#include "runners/comm/threads/thread_transfer.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

constexpr int max_tag = 4095;

}  // namespace

ThreadTransfer::ThreadTransfer(std::shared_ptr<ThreadGroup> group, int self, Outgoing outgoing)
    : group_(std::move(group)), self_(self), peer_(outgoing.to.value()) {
  message_.side = MailboxMessage::Side::send;
  message_.from = self;
  message_.tag = outgoing.tag;
  // Sends are only read.
  message_.data = const_cast<void*>(outgoing.values.data);
  message_.count = outgoing.values.count;
  message_.type = outgoing.values.type;
  post(static_cast<std::size_t>(peer_));
}

ThreadTransfer::ThreadTransfer(std::shared_ptr<ThreadGroup> group, int self, Incoming incoming)
    : group_(std::move(group)), self_(self), peer_(incoming.from.value()) {
  message_.side = MailboxMessage::Side::receive;
  message_.from = peer_;
  message_.tag = incoming.tag;
  message_.data = incoming.values.data;
  message_.count = incoming.values.count;
  message_.type = incoming.values.type;
  post(static_cast<std::size_t>(self));
}

ThreadTransfer::~ThreadTransfer() {
  if (!message_.ended()) take_back();
}

void ThreadTransfer::post(std::size_t receiver) {
  HETEROPERF_EXPECT(peer_ >= 0 && static_cast<std::size_t>(peer_) < group_->size());
  HETEROPERF_EXPECT(message_.tag >= 0 && message_.tag <= max_tag);
  // A small send would end although nobody can receive it.
  if (message_.side == MailboxMessage::Side::send && in_vain()) {
    message_.state = MailboxMessage::State::misfit;
    give_up();
  }
  if (group_->mailboxes[receiver].meet(message_) == Mailbox::Met::here) {
    group_->wait_points[static_cast<std::size_t>(peer_)].wake();
  }
}

bool ThreadTransfer::in_vain() const {
  return group_->world->in_vain({&group_->members[static_cast<std::size_t>(peer_)], 1});
}

bool ThreadTransfer::test() {
  if (!message_.ended()) {
    // In this order: what a peer did before it went still counts.
    if (!in_vain()) return false;
    if (!message_.ended() && take_back()) give_up();
  }
  check_fit();
  return true;
}

void ThreadTransfer::wait() {
  WaitPoint& here = group_->wait_points[static_cast<std::size_t>(self_)];
  if (!message_.ended() && peer_ == self_ && take_back()) {
    throw Error(ErrorKind::run_failed,
                {{text() + " from a rank to itself would wait for ever",
                  "its other side was not started before", "Start the other side first."}});
  }
  here.wait(group_->world->spins(), [&] { return message_.ended() || in_vain(); });
  if (!message_.ended() && take_back()) give_up();
  check_fit();
}

/// False when the other side has come first; its copy is through then.
bool ThreadTransfer::take_back() {
  const bool sends = message_.side == MailboxMessage::Side::send;
  const auto receiver = static_cast<std::size_t>(sends ? peer_ : self_);
  if (group_->mailboxes[receiver].withdraw(message_)) {
    message_.state = MailboxMessage::State::misfit;
    return true;
  }
  // The other side is copying and waits for nobody.
  WaitPoint& here = group_->wait_points[static_cast<std::size_t>(self_)];
  here.wait(group_->world->spins(), [&] { return message_.ended(); });
  return false;
}

void ThreadTransfer::give_up() {
  const auto failure =
      group_->world->failure_among({&group_->members[static_cast<std::size_t>(peer_)], 1});
  throw PeerError(failure.value(), text());
}

/// The sender of a small message has gone on, so the receiver alone is told.
void ThreadTransfer::check_fit() const {
  if (message_.state.load() != MailboxMessage::State::misfit) return;
  if (message_.side == MailboxMessage::Side::send) return;
  throw Error(
      ErrorKind::run_failed,
      {{fmt::format("rank {} awaits {} {} with tag {}, rank {} sent {} {}", world_rank(self_),
                    message_.count, to_string(message_.type), message_.tag, world_rank(peer_),
                    message_.other_count, to_string(message_.other_type)),
        "both sides need the same count and type", remedy_of_misfit}});
}

std::string ThreadTransfer::text() const {
  return describe(message_.side == MailboxMessage::Side::send ? "send" : "receive",
                  {nullptr, message_.count, message_.type});
}

int ThreadTransfer::world_rank(int member) const {
  return group_->members[static_cast<std::size_t>(member)].value();
}

}  // namespace heteroperf
