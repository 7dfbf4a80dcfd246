#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// A call on its way. It ends with a reply, or with the news that none will come.
struct PendingCall {
  std::optional<std::string> reply;
  bool dropped = false;
};

/// Everything that one process knows about the run, and the place where its calls wait.
/// Thread-safe.
class ControlState {
 public:
  /// True when this is the first failure; later ones are echoes and forgotten.
  bool fail(RankFailure failure);
  bool failed() const { return failed_.load(); }
  std::optional<RankFailure> failure() const;

  /// True when this is the first wish to stop.
  bool stop(std::string reason);
  std::optional<std::string> stop_reason() const;

  /// Ends a call: with a reply, or without one where rank 0 dropped it.
  void settle(PendingCall& call, std::optional<std::string> reply);
  /// Returns the reply. Throws PeerError on failure, or when rank 0 dropped the call.
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

/// A Reply that may be invoked once. It settles with its text; when its last copy dies unused, it
/// settles without one.
ControlChannel::Reply make_reply(std::function<void(std::optional<std::string>)> settle);

/// Rank 0's side of a control channel: handles messages in order of arrival, one at a time, on a
/// thread of its own. Messages wait while there is no handler.
class MessageService {
 public:
  using OnError = std::function<void(RankFailure)>;

  /// `on_error` learns of a handler's exception; the service then drops everything.
  explicit MessageService(OnError on_error) : on_error_(std::move(on_error)) {}
  ~MessageService();

  void serve(ControlChannel::Handler handler);
  /// Drops `reply` when the service is closed.
  void submit(RankId from, std::string message, ControlChannel::Reply reply);
  /// Submits a call of this process and returns the reply. Throws as ControlState::await().
  std::string call(RankId from, std::string message, const std::shared_ptr<ControlState>& state);
  /// Waits for the handler that runs and drops the messages behind it.
  void close();

 private:
  struct Item {
    RankId from;
    std::string message;
    ControlChannel::Reply reply;
  };

  void run();
  void handle(Item item);
  void discard();

  OnError on_error_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  ControlChannel::Handler handler_;
  bool busy_ = false;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace heteroperf
