#pragma once

#include <memory>

#include "runners/comm/threads/thread_group.hpp"

namespace heteroperf {

/// A send or receive between two ranks of a group; also usable on the stack.
class ThreadTransfer final : public Transfer {
 public:
  /// Posts it. Throws PeerError when the other rank is gone and can never meet it.
  ThreadTransfer(std::shared_ptr<ThreadGroup> group, int self, Outgoing outgoing);
  ThreadTransfer(std::shared_ptr<ThreadGroup> group, int self, Incoming incoming);
  /// Takes it back, or waits until the other side has copied.
  ~ThreadTransfer() override;
  ThreadTransfer(const ThreadTransfer&) = delete;
  ThreadTransfer& operator=(const ThreadTransfer&) = delete;

  bool test() override;
  void wait() override;

 private:
  void post(std::size_t receiver);
  bool in_vain() const;
  /// Of a message that will not be met.
  [[noreturn]] void give_up();
  void check_fit() const;
  bool take_back();
  std::string text() const;
  int world_rank(int member) const;

  std::shared_ptr<ThreadGroup> group_;
  MailboxMessage message_;
  int self_, peer_;
};

}  // namespace heteroperf
