#include "runners/comm/nccl/nccl_library.hpp"

#include <sched.h>

#include <exception>
#include <utility>

#include "metrics/base/error.hpp"

// NCCL's calls return before they have ended, in two stages: the handle is in progress while the
// library takes a call in (it may connect to peers meanwhile), and the stream is busy until the
// data have moved. Neither ends when a peer dies, so every wait polls both and asks the watch.
//
// Messages have numbers in the order in which they are started:
//
//     1 2 3 | 4 5 | 6 7
//           ▲     ▲
//      ended_     handed_over_       6 and 7 are queued; they become the next group
//
// Only one group of messages is under way at a time.

namespace heteroperf {
namespace {

using State = NcclStatus::State;

constexpr int spins = 1000;

}  // namespace

NcclHandle::~NcclHandle() {
  // While an exception is on its way the other ranks may never come to leave in order.
  if (handle_ == nullptr || std::uncaught_exceptions() > 0) {
    abort();
    return;
  }
  try {
    await_handle(library_->finalize(handle_), "leaving the group");
    library_->destroy(handle_);
  } catch (const std::exception&) {
    abort();
  }
}

void NcclHandle::look_after_peers(const std::string& operation) {
  const auto failure = watch_->failure_among(members_);
  if (!failure) return;
  abort();
  throw PeerError(*failure, operation);
}

template <class Ask>
void NcclHandle::poll(NcclStatus status, const std::string& operation, Ask ask) {
  for (int round = 0; status.state == State::in_progress; ++round) {
    look_after_peers(operation);
    if (round >= spins) sched_yield();
    status = ask();
  }
  if (status.state == State::failed) fail(status.text, operation);
}

void NcclHandle::check_whole(const std::string& operation) {
  if (handle_ == nullptr) fail("the group is broken by an earlier failure", operation);
}

void NcclHandle::await_handle(const NcclStatus& first, const std::string& operation) {
  if (first.state == State::failed) fail(first.text, operation);
  check_whole(operation);
  poll(first, operation, [this] { return library_->status(handle_); });
}

/// The stream's status, or the handle's when that failed: a peer's death shows as an asynchronous
/// error while the stream hangs.
NcclStatus NcclHandle::stream_and_handle() {
  const NcclStatus stream = library_->stream_status();
  if (stream.state != State::in_progress) return stream;
  const NcclStatus error = library_->status(handle_);
  return error.state == State::failed ? error : stream;
}

void NcclHandle::settle(const NcclStatus& first, const std::string& operation) {
  await_handle(first, operation);
  poll({State::in_progress, {}}, operation, [this] { return stream_and_handle(); });
}

void NcclHandle::ready(const std::string& operation) {
  check_whole(operation);
  wait(handed_over_, operation);
}

void NcclHandle::fail(const std::string& text, const std::string& operation) {
  abort();
  throw SystemError("NCCL failed during " + operation, text,
                    "NCCL_DEBUG=INFO prints what the library did.");
}

void NcclHandle::abort() noexcept {
  if (handle_ != nullptr) library_->abort(handle_);
  handle_ = nullptr;
}

std::uint64_t NcclHandle::queue(std::function<NcclStatus()> message) {
  queued_.push_back(std::move(message));
  return last();
}

void NcclHandle::hand_over(const std::string& operation) {
  const auto messages = std::exchange(queued_, {});
  NcclStatus worst;
  library_->group_start();
  for (const auto& message : messages) {
    NcclStatus status = message();
    if (status.state == State::failed) worst = std::move(status);
  }
  const NcclStatus end = library_->group_end();
  for (const NcclStatus* status : {&std::as_const(worst), &end}) {
    if (status->state == State::failed) fail(status->text, operation);
  }
  taken_in_ = end.state == State::done;
  handed_over_ += messages.size();
}

bool NcclHandle::test(std::uint64_t message, const std::string& operation) {
  if (message <= ended_) return true;
  check_whole(operation);
  look_after_peers(operation);
  if (handed_over_ == ended_ && !queued_.empty()) hand_over(operation);
  if (handed_over_ == ended_) return false;
  NcclStatus status;
  if (!taken_in_) status = library_->status(handle_);
  taken_in_ = status.state == State::done;
  if (taken_in_) status = stream_and_handle();
  if (status.state == State::failed) fail(status.text, operation);
  if (status.state == State::done) ended_ = handed_over_;
  return message <= ended_;
}

void NcclHandle::wait(std::uint64_t message, const std::string& operation) {
  for (int round = 0; !test(message, operation); ++round) {
    if (round >= spins) sched_yield();
  }
}

}  // namespace heteroperf
