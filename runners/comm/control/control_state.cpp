#include "runners/comm/control/control_state.hpp"

// A call is settled exactly once, by whichever comes first: the handler's reply, the end of the
// last copy of that reply (nobody can answer any more), or a failure of the run. The handler's
// thread takes one message at a time; while it is busy, serve({}) and close() wait for it, so that
// the handler never runs when the things it refers to are gone.

namespace heteroperf {
namespace {

/// The state that all copies of one Reply share.
class ReplyTicket {
 public:
  explicit ReplyTicket(std::function<void(std::optional<std::string>)> settle)
      : settle_(std::move(settle)) {}
  ~ReplyTicket() {
    if (!used_) settle_(std::nullopt);
  }
  ReplyTicket(const ReplyTicket&) = delete;
  ReplyTicket& operator=(const ReplyTicket&) = delete;

  void use(std::string text) {
    const bool used_before = used_.exchange(true);
    HETEROPERF_EXPECT(!used_before);
    settle_(std::move(text));
  }

 private:
  std::function<void(std::optional<std::string>)> settle_;
  std::atomic<bool> used_{false};
};

}  // namespace

ControlChannel::Reply make_reply(std::function<void(std::optional<std::string>)> settle) {
  return [ticket = std::make_shared<ReplyTicket>(std::move(settle))](std::string text) {
    ticket->use(std::move(text));
  };
}

bool ControlState::fail(RankFailure failure) {
  {
    std::lock_guard lock(mutex_);
    if (failure_) return false;
    failure_ = std::move(failure);
    failed_ = true;
  }
  changed_.notify_all();
  return true;
}

std::optional<RankFailure> ControlState::failure() const {
  if (!failed()) return std::nullopt;
  std::lock_guard lock(mutex_);
  return failure_;
}

bool ControlState::stop(std::string reason) {
  std::lock_guard lock(mutex_);
  if (stop_reason_) return false;
  stop_reason_ = std::move(reason);
  stopping_ = true;
  return true;
}

std::optional<std::string> ControlState::stop_reason() const {
  if (!stopping_) return std::nullopt;
  std::lock_guard lock(mutex_);
  return stop_reason_;
}

void ControlState::settle(PendingCall& call, std::optional<std::string> reply) {
  {
    std::lock_guard lock(mutex_);
    call.dropped = !reply;
    call.reply = std::move(reply);
  }
  changed_.notify_all();
}

std::string ControlState::await(PendingCall& call) {
  static const std::string operation = "a call to rank 0";
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return call.reply || call.dropped || failure_; });
  if (call.reply) return std::move(*call.reply);
  if (failure_) throw PeerError(*failure_, operation);
  throw PeerError(
      {RankId(0), ErrorKind::run_failed, "rank 0 ended its service without an answer", true},
      operation);
}

void ControlState::notify() {
  { std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

MessageService::~MessageService() {
  close();
  if (thread_.joinable()) thread_.join();
}

void MessageService::serve(ControlChannel::Handler handler) {
  std::unique_lock lock(mutex_);
  if (!handler) {
    changed_.wait(lock, [this] { return !busy_ && (queue_.empty() || !handler_ || closed_); });
    handler_ = nullptr;
    return;
  }
  HETEROPERF_EXPECT(!handler_);
  handler_ = std::move(handler);
  if (!thread_.joinable() && !closed_) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void MessageService::submit(RankId from, std::string message, ControlChannel::Reply reply) {
  Item item{from, std::move(message), std::move(reply)};
  std::lock_guard lock(mutex_);
  if (closed_) return;
  queue_.push_back(std::move(item));
  changed_.notify_all();
}

std::string MessageService::call(RankId from, std::string message,
                                 const std::shared_ptr<ControlState>& state) {
  auto pending = std::make_shared<PendingCall>();
  // The reply owns the state, because a handler may keep it longer than the channel lives.
  submit(from, std::move(message), make_reply([state, pending](std::optional<std::string> text) {
           state->settle(*pending, std::move(text));
         }));
  return state->await(*pending);
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
    // outlives the call of the handler: if the last copy died while the exception is on its way,
    // the caller would learn that no answer comes before it can learn why.
    return handler_(item.from, std::move(item.message), item.reply);
  } catch (const Error& error) {
    failure.kind = error.kind();
    failure.reason = error.what();
  } catch (const std::exception& error) {
    failure.reason = error.what();
  }
  failure.reason = "control handler: " + failure.reason;
  on_error_(std::move(failure));
  discard();
}

void MessageService::discard() {
  std::deque<Item> dropped;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(queue_);
  }
  // The replies are dropped here, outside the lock, because that runs callbacks.
}

}  // namespace heteroperf
