#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// The last transfers of a stream, numbered from 0 in the order in which they were started. One
/// that falls out of the window is waited for, so its memory may be used again.
class TransferRing {
 public:
  explicit TransferRing(std::size_t window) : window_(window) {}

  /// Waits for the one `window` before it. Nothing may stand for a message without elements.
  void push(std::unique_ptr<Transfer> transfer) {
    make_room();
    std::unique_ptr<Transfer>& place = transfers_[pushed_ % window_];
    place = std::move(transfer);
    ++pushed_;
  }
  /// Lets the next push() start its transfer into the memory of the one it replaces.
  void make_room() {
    if (transfers_.empty()) transfers_.resize(window_);
    finish(transfers_[pushed_ % window_]);
  }
  /// Returns at once when it has left the window. Requires that it was pushed.
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

/// Messages without elements are left out on both sides.
inline std::unique_ptr<Transfer> send_some(Communicator& group, ConstBuffer values, RankId to,
                                           int tag) {
  return values.count == 0 ? nullptr : group.start_send(values, to, tag);
}
inline std::unique_ptr<Transfer> receive_some(Communicator& group, MutableBuffer values,
                                              RankId from, int tag) {
  return values.count == 0 ? nullptr : group.start_receive(values, from, tag);
}

}  // namespace heteroperf
