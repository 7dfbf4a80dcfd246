#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// Rank 0's side of a control channel: messages in order of arrival, one at a time, on a thread of
/// its own. Messages wait while there is no handler.
class MessageService {
 public:
  using Message = std::string;
  using OnError = std::function<void(RankFailure)>;

  /// `on_error` learns of a handler's exception; the service then drops everything.
  explicit MessageService(OnError on_error);
  ~MessageService();

  void serve(ControlChannel::Handler handler);
  /// Drops `reply` when the service is closed.
  void submit(RankId from, Message message, ControlChannel::Reply reply);
  /// Waits for the running handler; what is queued falls.
  void close();

 private:
  struct Item {
    RankId from;
    Message message;
    ControlChannel::Reply reply;
  };

  void run();
  void drain(std::unique_lock<std::mutex>& lock);
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
