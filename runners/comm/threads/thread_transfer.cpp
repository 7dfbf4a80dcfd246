#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/threads/thread_group.hpp"

// A transfer is posted with the receiver's mailbox when it is made. From then on it ends in one of
// three ways: the other side meets it and copies, it is taken back because the other rank is gone,
// or it is destroyed, which takes it back too.

namespace heteroperf {
namespace {

constexpr int max_tag = 4095;

}  // namespace

ThreadTransfer::ThreadTransfer(std::shared_ptr<ThreadGroup> group, RankId self,
                               const Outgoing& outgoing)
    : group_(std::move(group)), self_(position(self)), peer_(position(outgoing.to)) {
  const ConstBuffer values = outgoing.values;
  message_.side = MailboxMessage::Side::send;
  message_.from = self.value();
  message_.tag = outgoing.tag;
  // A send's values are only read.
  message_.values = {const_cast<void*>(values.data), values.count, values.type};
  post();
}

ThreadTransfer::ThreadTransfer(std::shared_ptr<ThreadGroup> group, RankId self,
                               const Incoming& incoming)
    : group_(std::move(group)), self_(position(self)), peer_(position(incoming.from)) {
  message_.side = MailboxMessage::Side::receive;
  message_.from = incoming.from.value();
  message_.tag = incoming.tag;
  message_.values = incoming.values;
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
