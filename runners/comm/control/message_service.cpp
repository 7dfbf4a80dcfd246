#include "runners/comm/control/message_service.hpp"

namespace heteroperf {

MessageService::MessageService(OnError on_error) : on_error_(std::move(on_error)) {}

MessageService::~MessageService() {
  close();
  if (thread_.joinable()) thread_.join();
}

void MessageService::serve(ControlChannel::Handler handler) {
  std::unique_lock lock(mutex_);
  if (!handler) return drain(lock);
  HETEROPERF_EXPECT(!handler_);
  handler_ = std::move(handler);
  if (!thread_.joinable() && !closed_) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void MessageService::submit(RankId from, Message message, ControlChannel::Reply reply) {
  Item item{from, std::move(message), std::move(reply)};
  std::lock_guard lock(mutex_);
  if (closed_) return;
  queue_.push_back(std::move(item));
  changed_.notify_all();
}

void MessageService::drain(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !busy_ && (queue_.empty() || !handler_ || closed_); });
  handler_ = nullptr;
}

void MessageService::close() {
  {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
    // A handler that closes its own channel must not wait for itself.
    if (std::this_thread::get_id() != thread_.get_id()) {
      changed_.wait(lock, [this] { return !busy_; });
    }
  }
  discard();
}

void MessageService::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closed_ || (handler_ && !queue_.empty()); });
    if (closed_) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    handle(std::move(item));
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void MessageService::handle(Item item) {
  RankFailure failure{RankId(0), ErrorKind::run_failed, ""};
  try {
    // Only serve({}) clears the handler, and it waits for this message. This copy of the reply
    // outlives it: were the last one to fall while the exception is on its way, whoever waits for
    // the answer would learn that none comes before it can learn why.
    return handler_(item.from, std::move(item.message), item.reply);
  } catch (const Error& error) {
    failure.kind = error.kind();
    failure.reason = error.what();
  } catch (const std::exception& error) {
    failure.reason = error.what();
  }
  on_error_(std::move(failure));
  discard();
}

void MessageService::discard() {
  std::deque<Item> fallen;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    fallen.swap(queue_);
  }
  // Their replies are dropped here, outside the lock: that runs callbacks.
}

}  // namespace heteroperf
