#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Keeps the last `window` transfers of a stream, numbered from 0 in the order in which they were
/// started. A transfer that falls out of the window is waited for, so that its memory may be used
/// again.
class TransferRing {
 public:
  explicit TransferRing(std::size_t window) : window_(window) {}

  /// Adds a transfer and waits for the one `window` before it. A null transfer stands for a
  /// message that has no elements or is not sent.
  void push(std::unique_ptr<Transfer> transfer) {
    make_room();
    transfers_[pushed_ % window_] = std::move(transfer);
    ++pushed_;
  }
  /// Waits for the transfer that the next push() replaces, so that the next one can be started into
  /// the same memory.
  void make_room() {
    if (transfers_.empty()) transfers_.resize(window_);
    finish(transfers_[pushed_ % window_]);
  }
  /// Waits for a transfer that has been pushed; returns at once when it has left the window.
  void wait(std::size_t index) {
    if (index + window_ >= pushed_) finish(transfers_[index % window_]);
  }
  void wait_all() {
    for (std::size_t k = pushed_ - std::min(pushed_, window_); k < pushed_; ++k) wait(k);
  }
  std::size_t pushed() const { return pushed_; }

 private:
  static void finish(std::unique_ptr<Transfer>& transfer) {
    if (!transfer) return;
    transfer->wait();
    transfer.reset();
  }

  std::size_t window_;
  std::size_t pushed_ = 0;
  std::vector<std::unique_ptr<Transfer>> transfers_;
};

/// Starts a message unless it has no elements. Both sides leave empty messages out.
inline std::unique_ptr<Transfer> send_some(Communicator& group, ConstBuffer values, RankId to,
                                           int tag) {
  return values.count == 0 ? nullptr : group.start_send(values, to, tag);
}
inline std::unique_ptr<Transfer> receive_some(Communicator& group, MutableBuffer values,
                                              RankId from, int tag) {
  return values.count == 0 ? nullptr : group.start_receive(values, from, tag);
}

}  // namespace heteroperf
