#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// A call on its way: ends with a reply, or with the news that none will come.
struct PendingCall {
  std::optional<std::string> reply;
  bool dropped = false;
};

/// What one process knows about the run, and the place where its calls wait. Thread-safe.
class ControlState {
 public:
  /// True when this is the first failure; later ones are echoes and forgotten.
  bool fail(RankFailure failure);
  bool failed() const { return failed_.load(); }
  std::optional<RankFailure> failure() const;

  /// True when this is the first wish to stop.
  bool stop(std::string reason);
  std::optional<std::string> stop_reason() const;

  void complete(PendingCall& call, std::string reply);
  void drop(PendingCall& call);
  /// Throws PeerError on failure, or when rank 0 let the call fall.
  std::string await(PendingCall& call);
  /// False when `deadline_s` passed first. `ready` is asked again after notify().
  template <class Ready>
  bool wait_for(double deadline_s, Ready ready) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(deadline_s), ready);
  }
  void notify();

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> stopping_{false};
  std::optional<RankFailure> failure_;
  std::optional<std::string> stop_reason_;
};

/// A Reply that may be invoked once; when its last copy dies unused, `dropped` runs instead.
ControlChannel::Reply make_reply(std::function<void(std::string)> deliver,
                                 std::function<void()> dropped);

}  // namespace heteroperf
