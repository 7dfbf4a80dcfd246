#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// One message on its way to a receiver. Small ones carry a copy, large ones are read from the
/// sender's buffer while the sender waits.
struct Letter {
  enum class State { posted, claimed, done };

  int from = 0;
  int tag = 0;
  ConstBuffer values;
  std::vector<std::byte> copy;
  std::atomic<State> state{State::posted};
};

/// The letters for one rank. Thread-safe.
class Mailbox {
 public:
  void put(std::shared_ptr<Letter> letter) {
    std::lock_guard lock(mutex_);
    letters_.push_back(std::move(letter));
    posted_.fetch_add(1);
  }

  /// The oldest letter from that rank with that tag, now claimed by the caller; or none.
  std::shared_ptr<Letter> take(int from, int tag) {
    std::lock_guard lock(mutex_);
    for (auto it = letters_.begin(); it != letters_.end(); ++it) {
      if ((*it)->from != from || (*it)->tag != tag) continue;
      std::shared_ptr<Letter> letter = std::move(*it);
      letters_.erase(it);
      letter->state = Letter::State::claimed;
      return letter;
    }
    return nullptr;
  }

  /// Takes a letter back. False when the receiver has claimed it already.
  bool withdraw(const std::shared_ptr<Letter>& letter) {
    std::lock_guard lock(mutex_);
    return letters_.remove(letter) > 0;
  }

  /// Grows with every letter, so a receiver knows when to look again.
  std::size_t posted() const { return posted_.load(); }

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<Letter>> letters_;
  std::atomic<std::size_t> posted_{0};
};

}  // namespace heteroperf
