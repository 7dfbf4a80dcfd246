#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runners/comm/control_channel.hpp"
#include "runners/comm/nccl/nccl_library.hpp"

namespace heteroperf {

/// One group's handle and the waits for its operations; shared with messages under way. Every wait
/// looks at the stream, the library's asynchronous error and the watch, and aborts the handle when
/// one of them reports a failure.
class NcclHandle {
 public:
  NcclHandle(std::shared_ptr<NcclLibrary> library, std::vector<RankId> members,
             std::shared_ptr<PeerWatch> watch)
      : library_(std::move(library)), members_(std::move(members)), watch_(std::move(watch)) {}
  /// Leaves the group in order, or aborts it while an exception is on its way.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  NcclLibrary& library() { return *library_; }
  const std::shared_ptr<NcclLibrary>& shared_library() const { return library_; }
  const std::shared_ptr<PeerWatch>& watch() const { return watch_; }
  const std::vector<RankId>& members() const { return members_; }
  void*& handle() { return handle_; }

  /// Waits until the library may be called: all messages that were handed over have ended.
  void ready(const std::string& operation);
  /// Waits until handle and stream are idle. `first` is the answer of the call itself.
  void settle(const NcclStatus& first, const std::string& operation);
  /// Waits until the library has taken in its last call; the stream may go on.
  void await_handle(const NcclStatus& first, const std::string& operation);

  /// Adds a message to those that were started and not yet handed to the library; they are one
  /// group, which cannot block itself. Returns the number of the message, from 1.
  std::uint64_t queue(std::function<NcclStatus()> message);
  /// The number of the message that was queued last.
  std::uint64_t last() const { return handed_over_ + queued_.size(); }
  /// True when the message of that number has ended. Hands over the queued messages as soon as the
  /// group before has ended; does not wait.
  bool test(std::uint64_t message, const std::string& operation);
  void wait(std::uint64_t message, const std::string& operation);

 private:
  template <class Ask>
  void poll(NcclStatus status, const std::string& operation, Ask ask);
  void look_after_peers(const std::string& operation);
  NcclStatus stream_and_handle();
  void hand_over(const std::string& operation);
  [[noreturn]] void fail(const std::string& text, const std::string& operation);
  void check_whole(const std::string& operation);
  void abort() noexcept;

  std::shared_ptr<NcclLibrary> library_;
  std::vector<RankId> members_;
  std::shared_ptr<PeerWatch> watch_;
  void* handle_ = nullptr;
  std::vector<std::function<NcclStatus()>> queued_;
  std::uint64_t handed_over_ = 0, ended_ = 0;  ///< messages; those between are under way
  bool taken_in_ = true;                       ///< the library has taken in all that is under way
};

}  // namespace heteroperf
