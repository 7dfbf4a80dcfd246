#include "runners/comm/control/control_state.hpp"

namespace heteroperf {
namespace {

/// Shared by all copies of one Reply.
class ReplyTicket {
 public:
  ReplyTicket(std::function<void(std::string)> deliver, std::function<void()> dropped)
      : deliver_(std::move(deliver)), dropped_(std::move(dropped)) {}
  ~ReplyTicket() {
    if (!used_) dropped_();
  }
  ReplyTicket(const ReplyTicket&) = delete;
  ReplyTicket& operator=(const ReplyTicket&) = delete;

  void use(std::string text) {
    const bool used_before = used_.exchange(true);
    HETEROPERF_EXPECT(!used_before);
    deliver_(std::move(text));
  }

 private:
  std::function<void(std::string)> deliver_;
  std::function<void()> dropped_;
  std::atomic<bool> used_{false};
};

}  // namespace

ControlChannel::Reply make_reply(std::function<void(std::string)> deliver,
                                 std::function<void()> dropped) {
  auto ticket = std::make_shared<ReplyTicket>(std::move(deliver), std::move(dropped));
  return [ticket](std::string text) { ticket->use(std::move(text)); };
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

void ControlState::complete(PendingCall& call, std::string reply) {
  {
    std::lock_guard lock(mutex_);
    call.reply = std::move(reply);
  }
  changed_.notify_all();
}

void ControlState::drop(PendingCall& call) {
  {
    std::lock_guard lock(mutex_);
    call.dropped = true;
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

}  // namespace heteroperf
